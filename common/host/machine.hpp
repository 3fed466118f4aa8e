// What the host device offers to the kernel's text: threads, waiting, and counts.
//
// Included by the compiled kernel (through port_host.hpp) and by the runtime that carries it out. See runtime.hpp for
// the execution model.
#pragma once
#include "sanitizer.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace host {

constexpr int widths = 4;      // a load of 2, 4, 8 or 16 bytes
constexpr int from_shared = 3; // row of Counts::loaded behind the kinds of Data
constexpr size_t line_bytes = 128;

// What one stage did, over all threads of the grid. The order is that of common/counters.py.
struct Counts {
  uint64_t grid_barriers;  // as block 0 counts them
  uint64_t block_barriers; // per block
  uint64_t shuffles;       // per warp
  uint64_t atomics;
  uint64_t stored_activations, stored_kv; // bytes
  uint64_t prefetched, copied_async;      // bytes
  uint64_t loaded[4][widths];             // bytes by Data, or from shared memory, and by width of the load
};

// What the inline functions need of a thread; the rest of it is in runtime.hpp.
struct Thread {
  Counts *counts; // of the stage it is in
  int index, block, blocks;
  const char *shared; // the block's shared memory, to tell its loads from those of global memory
  size_t shared_bytes;
};
extern thread_local Thread *current;

struct Launch {
  uint16_t *weights, *cache;
  float *scratch;
  uint32_t *state, *waits;
  int steps;           // tokens to decode in this launch
  int stage, layer;    // what to do, for a kernel that does one stage at a time
  int blocks, workers; // workers: how many blocks run at the same time
  uint64_t seed;       // of the order in which lanes, warps and blocks run
  double timeout;      // seconds
  Counts *counts;      // one per stage, added to
  char *report;
  size_t report_size;
};

// The one symbol a compiled kernel exports to the runtime.
struct Entry {
  int threads;
  size_t shared_bytes;
  void (*body)(const Launch &, void *shared);
};

// A place in the source, for reports.
struct Site {
  const char *file;
  int line;
};
inline Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

void mark(int stage, int layer);
void block_barrier(Site site);
void named_barrier(int id, int threads, bool wait, Site site);
void warp_barrier(Site site);
uint32_t exchange(uint32_t value, int lane_mask, Site site);
void spin_pause(Site site);
void progressed();
void observed();
[[noreturn]] void trap(const char *why, Site site);
void copy_async(void *to, const void *from, size_t bytes, Site site);
void copy_commit();
void copy_wait(int newest);

template <int Bytes> constexpr int width_index = Bytes == 2 ? 0 : Bytes == 4 ? 1 : Bytes == 8 ? 2 : 3;

inline LAB_UNSEEN void count(uint64_t Counts::*what, uint64_t amount = 1) { current->counts->*what += amount; }

template <int Bytes> inline LAB_UNSEEN void count_load(int kind, const void *from) {
  const Thread &self = *current;
  const bool shared = static_cast<size_t>(static_cast<const char *>(from) - self.shared) < self.shared_bytes;
  self.counts->loaded[shared ? from_shared : kind][width_index<Bytes>] += Bytes;
}

inline void check_aligned(const void *address, size_t bytes, Site site) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) trap("misaligned access", site);
}

} // namespace host
