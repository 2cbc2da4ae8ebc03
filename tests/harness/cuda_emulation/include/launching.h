// A grid's blocks one after another, and the scheduler of a block's threads.
#pragma once
#include <tuple>
#include <utility>

extern "C" char __start_emulated_shared[] __attribute__((weak));
extern "C" char __stop_emulated_shared[] __attribute__((weak));

namespace emulation {

enum class Order { FORWARD, REVERSE, RANDOM };
static char* dynamic_shared;

// All bits set: a NaN for float32, bfloat16 and half, and an index that is out of bounds.
EMULATION_CODE static void poison_shared_memory(size_t dynamic_bytes) {
  free(dynamic_shared);
  void* memory = nullptr;
  if (posix_memalign(&memory, 128, dynamic_bytes ? dynamic_bytes : 1)) abort();
  dynamic_shared = static_cast<char*>(memory);
  memset(dynamic_shared, 0xff, dynamic_bytes);
  if (__start_emulated_shared)
    memset(__start_emulated_shared, 0xff, __stop_emulated_shared - __start_emulated_shared);
}

struct Random {
  unsigned state;
  unsigned below(unsigned bound) {  // a linear congruential generator, Numerical Recipes
    state = state * 1664525u + 1013904223u;
    return static_cast<unsigned>(static_cast<uint64_t>(state) * bound >> 32);
  }
};

EMULATION_CODE static void describe_deadlock(unsigned count) {
  char waiting[1500] = "";
  size_t used = 0;
  const char* last = "";
  for (unsigned i = 0; i < count && used + 200 < sizeof waiting; i++) {
    if (fibers[i].state == State::FINISHED || !strcmp(last, fibers[i].place)) continue;
    last = fibers[i].place;
    used += snprintf(waiting + used, sizeof waiting - used, "; thread %u waits at %s (%s)", i, last,
                     fibers[i].state == State::AT_BARRIER ? "__syncthreads" : "its warp");
  }
  fail("divergent barrier: nobody can go on%s", waiting);
}

// All threads that have not ended are at a barrier: at the same one, or the kernel is wrong.
EMULATION_CODE static void open_barrier(unsigned count) {
  const Fiber* first = nullptr;
  for (unsigned i = 0; i < count; i++) {
    Fiber& fiber = fibers[i];
    if (fiber.state != State::AT_BARRIER) continue;
    if (!first) first = &fiber;
    if (strcmp(first->place, fiber.place))
      fail("divergent barrier: thread %u is at %s and thread %u at %s", first->number, first->place,
           i, fiber.place);
    fiber.state = State::RUNNABLE;
  }
}

EMULATION_CODE static bool can_run(const Fiber& fiber) {
  return fiber.state == State::RUNNABLE ||
         (fiber.state == State::IN_WARP && fiber.meeting->complete(fiber.phase));
}

EMULATION_CODE static void run_block(size_t shared_bytes, Order order, Random random) {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  prepare_fibers(count);
  warps.assign((count + 31) / 32, Warp{});
  copies.assign(count, Copies{});
  poison_shared_memory(shared_bytes);
  std::vector<unsigned> turns(count);
  for (unsigned i = 0; i < count; i++) turns[i] = order == Order::REVERSE ? count - 1 - i : i;
  scheduler_sanitizer = __tsan_get_current_fiber();
  __tsan_release(&block_start_fence);
  while (!failure[0]) {
    if (order == Order::RANDOM)
      for (unsigned i = count - 1; i; i--) std::swap(turns[i], turns[random.below(i + 1)]);
    bool progress = false;
    for (unsigned turn : turns)
      if (can_run(fibers[turn]) && !failure[0]) resume(fibers[turn]), progress = true;
    if (progress) continue;
    unsigned finished = 0, at_barrier = 0;
    for (unsigned i = 0; i < count; i++) {
      finished += fibers[i].state == State::FINISHED;
      at_barrier += fibers[i].state == State::AT_BARRIER;
    }
    if (finished == count) break;
    if (finished + at_barrier == count)
      open_barrier(count);
    else
      describe_deadlock(count);
  }
  __tsan_acquire(&block_start_fence);
}

struct Geometry {
  uint3 grid, block;
  size_t shared_bytes;
};
static void (*kernel_call)(void** arguments);
static void** kernel_arguments;

EMULATION_CODE static void run_grid(const Geometry& geometry, Order order, unsigned seed) {
  gridDim = geometry.grid, blockDim = geometry.block;
  const uint64_t blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
  thread_body = [] { kernel_call(kernel_arguments); };
  for (uint64_t turn = 0; turn < blocks && !failure[0]; turn++) {
    const uint64_t block = order == Order::REVERSE ? blocks - 1 - turn : turn;
    blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
                unsigned(block / gridDim.x / gridDim.y)};
    run_block(geometry.shared_bytes, order, Random{seed + unsigned(block)});
  }
}

template <auto KERNEL, typename Parameters> struct Call;
template <auto KERNEL, typename... Parameters> struct Call<KERNEL, void (*)(Parameters...)> {
  // A pointer, or the scalar in the first bytes of one.
  template <typename T> static T value(void* argument) {
    static_assert(sizeof(T) <= sizeof argument);
    T value;
    memcpy(&value, &argument, sizeof value);
    return value;
  }
  template <size_t... I> static void with(void** arguments, std::index_sequence<I...>) {
    KERNEL(value<Parameters>(arguments[I])...);
  }
  static void run(void** arguments) { with(arguments, std::index_sequence_for<Parameters...>{}); }
};
template <auto KERNEL> static void call(void** arguments) {
  Call<KERNEL, decltype(KERNEL)>::run(arguments);
}

}  // namespace emulation

#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(emulation::dynamic_shared)
