// A fiber per CUDA thread: a stack, and where its thread stopped.
//
// One CPU thread runs them all, and a fiber gives way only where its CUDA thread would have to
// wait for others. ThreadSanitizer is told of the fibers, and of every barrier as a release and
// an acquire, so that it sees just the order that CUDA promises.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#else
static inline void* __tsan_get_current_fiber() { return nullptr; }
static inline void* __tsan_create_fiber(unsigned) { return nullptr; }
static inline void __tsan_switch_to_fiber(void*, unsigned) {}
static inline void __tsan_acquire(void*) {}
static inline void __tsan_release(void*) {}
#endif

// AddressSanitizer still knows a frame of the block before, whose fiber never left it.
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_unpoison_memory_region(void const volatile*, size_t);
#else
static inline void __asan_unpoison_memory_region(void const volatile*, size_t) {}
#endif

#if !defined(__x86_64__)
#error "the switch between fibers is written for x86-64"
#endif

namespace emulation {

enum class State { RUNNABLE, AT_BARRIER, IN_WARP, FINISHED };
struct Rendezvous;  // of a warp's lanes, see barriers.h

struct Fiber {
  void* stack_pointer;
  char* stack;
  void* sanitizer;      // ThreadSanitizer's handle
  unsigned number;      // of the CUDA thread in its block
  uint3 index;          // its threadIdx
  State state;
  const char* place;    // file and line where it waits
  Rendezvous* meeting;  // what it waits for in State::IN_WARP,
  int phase;            // and which of the meeting's two phases
  unsigned barriers;    // passed so far
};

constexpr size_t STACK_BYTES = 128 << 10;
static std::vector<Fiber> fibers;
static Fiber* current;
static void* scheduler_stack_pointer;
static void* scheduler_sanitizer;
static char block_start_fence;  // what ThreadSanitizer orders by
static void (*thread_body)();
static char failure[2000];

static unsigned lane() { return current->number & 31; }

// The first thing that went wrong; the scheduler stops at the next switch.
__attribute__((format(printf, 1, 2))) EMULATION_CODE static void fail(const char* format, ...) {
  if (failure[0]) return;
  va_list arguments;
  va_start(arguments, format);
  const int used = snprintf(failure, sizeof failure, "block (%u,%u,%u): ", blockIdx.x, blockIdx.y,
                            blockIdx.z);
  vsnprintf(failure + used, sizeof failure - used, format, arguments);
  va_end(arguments);
}

// Saves the registers that a function call keeps, and the stack; goes on where `to` was saved.
extern "C" void emulation_switch(void** save, void* to);
asm(".text\n"
    ".local emulation_switch\n"
    ".type emulation_switch,@function\n"
    "emulation_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp,(%rdi)\n  mov %rsi,%rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n");

EMULATION_CODE static void give_way() {
  Fiber* fiber = current;
  __tsan_switch_to_fiber(scheduler_sanitizer, 1);
  emulation_switch(&fiber->stack_pointer, scheduler_stack_pointer);
}

EMULATION_CODE static void resume(Fiber& fiber) {
  current = &fiber;
  threadIdx = fiber.index;
  fiber.state = State::RUNNABLE;
  __tsan_switch_to_fiber(fiber.sanitizer, 1);
  emulation_switch(&scheduler_stack_pointer, fiber.stack_pointer);
}

static void forget_copies();  // asynchronous_copies.h

EMULATION_CODE static void fiber_main() {
  __tsan_acquire(&block_start_fence);
  thread_body();
  forget_copies();
  __tsan_release(&block_start_fence);
  current->state = State::FINISHED;
  give_way();
  abort();
}

// Fibers for `count` CUDA threads, each about to enter `fiber_main`.
EMULATION_CODE static void prepare_fibers(unsigned count) {
  while (fibers.size() < count) {
    Fiber fiber{};
    fiber.stack = static_cast<char*>(malloc(STACK_BYTES));
    fiber.sanitizer = __tsan_create_fiber(0);
    fibers.push_back(fiber);
  }
  for (unsigned i = 0; i < count; i++) {
    Fiber& fiber = fibers[i];
    __asan_unpoison_memory_region(fiber.stack, STACK_BYTES);
    const uintptr_t top = reinterpret_cast<uintptr_t>(fiber.stack + STACK_BYTES) & ~uintptr_t(15);
    void** stack = reinterpret_cast<void**>(top);
    *--stack = nullptr;
    *--stack = reinterpret_cast<void*>(fiber_main);
    for (int saved = 0; saved < 6; saved++) *--stack = nullptr;
    fiber.stack_pointer = stack;
    fiber.number = i;
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    fiber.state = State::RUNNABLE;
    fiber.place = "its start";
    fiber.meeting = nullptr;
    fiber.barriers = 0;
  }
}

}  // namespace emulation

#define EMULATION_TEXT_OF(x) #x
#define EMULATION_TEXT(x) EMULATION_TEXT_OF(x)
#define EMULATION_PLACE __FILE__ ":" EMULATION_TEXT(__LINE__)
