// Shuffles and votes: the lanes meet, then read what another lane showed.
#pragma once

namespace emulation {

template <typename T>
EMULATION_CODE static T shuffle(const char* place, unsigned mask, T value, unsigned from) {
  const Meeting meeting = meet(mask, &value, sizeof value, place);
  if (!(mask >> from & 1)) fail("%s: a shuffle from lane %u, outside its mask", place, from);
  return meeting.shown_by<T>(from);
}

EMULATION_CODE static unsigned ballot(const char* place, unsigned mask, bool vote) {
  const Meeting meeting = meet(mask, &vote, sizeof vote, place);
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; i++)
    if (mask >> i & 1 && meeting.shown_by<bool>(i)) votes |= 1u << i;
  return votes;
}

// Fibers give way at barriers and meetings alone, so a plain change is atomic.
template <typename T> EMULATION_CODE static T atomic_add(T* address, T value) {
  __tsan_acquire(address);
  const T before = *address;
  *address = before + value;
  __tsan_release(address);
  return before;
}

}  // namespace emulation

#define __shfl_sync(mask, value, from) \
  emulation::shuffle(EMULATION_PLACE, mask, value, (from) & 31)
#define __shfl_xor_sync(mask, value, apart) \
  emulation::shuffle(EMULATION_PLACE, mask, value, emulation::lane() ^ (apart))
#define __ballot_sync(mask, vote) emulation::ballot(EMULATION_PLACE, mask, vote)
#define atomicAdd(address, value) emulation::atomic_add(address, value)
