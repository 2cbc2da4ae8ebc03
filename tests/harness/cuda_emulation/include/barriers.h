// Where CUDA threads wait for each other: a block's barrier, and the meetings of a warp's lanes.
#pragma once

namespace emulation {

static char barrier_fences[2];

EMULATION_CODE static void barrier(const char* place) {
  char* fence = &barrier_fences[current->barriers++ & 1];
  current->state = State::AT_BARRIER;
  current->place = place;
  __tsan_release(fence);
  give_way();
  __tsan_acquire(fence);
}

// The lanes of a mask meet here again and again. A lane is at most one meeting ahead of the
// others, so two phases suffice to keep apart what they show each other.
struct Rendezvous {
  unsigned mask = 0;
  unsigned arrived[2] = {0, 0};
  unsigned visits[32] = {};
  const char* place[2] = {};
  unsigned char shown[2][32][16];
  char fences[2];

  bool complete(int phase) const { return arrived[phase] == mask; }
};

constexpr int MASKS_OF_A_WARP = 8;
struct Warp {
  Rendezvous meetings[MASKS_OF_A_WARP];
};
static std::vector<Warp> warps;

struct Meeting {
  const Rendezvous* rendezvous;
  int phase;

  template <typename T> EMULATION_CODE T shown_by(unsigned lane) const {
    T value;
    __builtin_memcpy(&value, rendezvous->shown[phase][lane], sizeof value);
    return value;
  }
};

EMULATION_CODE static Rendezvous& meeting_of(unsigned mask, const char* place) {
  for (Rendezvous& rendezvous : warps[current->number / 32].meetings)
    if (rendezvous.mask == mask || rendezvous.mask == 0) {
      rendezvous.mask = mask;
      return rendezvous;
    }
  fprintf(stderr, "%s: more than %d masks in a warp\n", place, MASKS_OF_A_WARP);
  abort();
}

// Every lane of `mask` comes here and shows the others `bytes` <= 16 bytes.
EMULATION_CODE static Meeting meet(unsigned mask, const void* value, size_t bytes,
                                   const char* place) {
  if (!(mask >> lane() & 1)) fail("%s: lane %u is not in its mask %08x", place, lane(), mask);
  Rendezvous& rendezvous = meeting_of(mask, place);
  const int phase = rendezvous.visits[lane()]++ & 1;
  if (rendezvous.complete(phase)) rendezvous.arrived[phase] = 0;  // from two meetings ago
  if (rendezvous.arrived[phase] == 0) rendezvous.place[phase] = place;
  if (strcmp(rendezvous.place[phase], place))
    fail("divergent warp: lanes of one mask are at %s and at %s", rendezvous.place[phase], place);
  if (bytes) __builtin_memcpy(rendezvous.shown[phase][lane()], value, bytes);
  rendezvous.arrived[phase] |= 1u << lane();
  if (!rendezvous.complete(phase) || failure[0]) {
    current->state = State::IN_WARP;
    current->meeting = &rendezvous;
    current->phase = phase;
    current->place = place;
    give_way();
  }
  return {&rendezvous, phase};
}

// Beyond a meeting it orders what the lanes do with memory, which no shuffle or vote does.
EMULATION_CODE static void sync_warp(const char* place) {
  Rendezvous& rendezvous = meeting_of(~0u, place);
  char* fence = &rendezvous.fences[rendezvous.visits[lane()] & 1];
  __tsan_release(fence);
  meet(~0u, nullptr, 0, place);
  __tsan_acquire(fence);
}

}  // namespace emulation

#define __syncthreads() emulation::barrier(EMULATION_PLACE)
#define __syncwarp() emulation::sync_warp(EMULATION_PLACE)
