// cp.async: a copy happens at some time between its start and its wait. Late, a missing wait
// shows; early, a missing barrier before the place is used anew.
#pragma once

namespace emulation {

struct Copy {
  void* to;
  const void* from;  // none: zeros
  unsigned group;
};
struct Copies {
  std::vector<Copy> pending;
  unsigned committed = 0;  // groups
};
static std::vector<Copies> copies;  // of each CUDA thread
static bool copy_early;

// Not EMULATION_CODE: sanitizers shall see these reads and writes, in the waiting thread.
static void do_copy(const Copy& copy) {
  static const uint4 zeros{};
  *static_cast<uint4*>(copy.to) = copy.from ? *static_cast<const uint4*>(copy.from) : zeros;
}

EMULATION_CODE static void copy_asynchronously(void* to, const void* from, bool read) {
  Copies& own = copies[current->number];
  const Copy copy{to, read ? from : nullptr, own.committed};
  if (copy_early)
    do_copy(copy);
  else
    own.pending.push_back(copy);
}

EMULATION_CODE static void commit_copies() { copies[current->number].committed++; }

// Until at most `most` of the newest committed groups are pending.
EMULATION_CODE static void wait_for_copies(unsigned most) {
  Copies& own = copies[current->number];
  size_t done = 0;
  while (done < own.pending.size() && own.pending[done].group + most < own.committed)
    do_copy(own.pending[done++]);
  own.pending.erase(own.pending.begin(), own.pending.begin() + done);
}

EMULATION_CODE static void forget_copies() { copies[current->number] = Copies{}; }

}  // namespace emulation

static inline void copy_async_16(void* to, const void* from, bool read) {
  emulation::copy_asynchronously(to, from, read);
}
static inline void commit_copies() { emulation::commit_copies(); }
template <int MOST> static inline void wait_for_copies() { emulation::wait_for_copies(MOST); }
