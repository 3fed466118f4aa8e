// Interface between the kernel's text and the runtime of the host device: threads, synchronization, counts.
//
// Included by the compiled kernel (through port_host.hpp) and by the runtime. See runtime.hpp for the execution model.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

// Only C's functions: libstdc++'s further templates take a sixth of a kernel's compilation.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

namespace host {

constexpr int widths = 4;      // a load of 2, 4, 8 or 16 bytes
constexpr int from_shared = 3; // row of Counts::loaded after the kinds of Data
constexpr size_t line_bytes = 128;

// Counts of one stage, over all threads of the grid. Same order as FIELDS in common/devices/counters.py.
struct Counts {
  uint64_t grid_barriers;  // per grid, counted by block 0
  uint64_t block_barriers; // per block
  uint64_t shuffles;       // per warp
  uint64_t atomics;
  uint64_t stored_activations, stored_kv; // bytes
  uint64_t prefetched, copied_async;      // bytes
  uint64_t copied_bulk, kept;             // bytes; kept: the part with an L2 policy to keep it
  uint64_t loaded[4][widths];             // bytes, by Data or `from_shared`, and by width of the load
};

// A buffer that the kernel may access.
struct Range {
  const char *start;
  size_t bytes;
};

// The part of a CUDA thread that the inline functions use; Fiber in runtime.hpp has the rest.
struct Thread {
  Counts *counts; // of the current stage
  int index, block, blocks;
  Range data[3]; // weights, cache and scratch: by Data
  Range shared;
};
extern thread_local Thread *current;

// Arguments of one launch; `Launch` in common/devices/host/device.py has the same fields.
struct Launch {
  uint16_t *weights, *cache;
  float *scratch;
  uint32_t *state, *waits;
  size_t bytes[5];     // sizes of these five buffers
  int kernel, last;    // number of the kernel (of the stage, with a kernel per stage), and its last argument
  int blocks, workers; // workers: blocks that may run at the same time
  uint64_t seed;       // of the order of lanes, warps and blocks
  double timeout;      // seconds
  Counts *counts;      // one per stage; the launch adds to them
  char *report;        // receives a text of at most report_size - 1 bytes when the launch fails
  size_t report_size;
};

// The one symbol a compiled kernel exports to the runtime.
struct Entry {
  int threads, computing; // computing: without the loader warps
  size_t shared_bytes;
  void (*body)(const Launch &, void *shared);
};

// A source line, for reports.
struct Site {
  const char *file;
  int line;
};
inline Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

void mark(int stage, int layer); // the calling thread enters this stage
void block_barrier(Site site);
void named_barrier(int id, int threads, bool wait, Site site);
void warp_barrier(Site site);
uint32_t exchange(uint32_t value, int lane_mask, Site site);
using LaneWords = uint32_t[32]; // values exchanged by the lanes of a warp; valid until their next exchange
const LaneWords *together(const void *own, size_t bytes, Site site); // of all lanes, each up to `bytes`
void spin_pause(Site site);             // call in every iteration of a spin loop: lets other fibers run
void progressed();                      // call after every atomic write: spinning fibers may poll again
void published();                       // call after every relaxed store that another block may poll
void stored_entry(const void *element); // call after an ordinary store in the cache, in a kernel with a loader
[[noreturn]] void trap(const char *why, Site site);
[[noreturn, gnu::cold]] void refuse(const char *access, const void *address, Site site); // forbidden access
void copy_async(void *to, const void *from, size_t bytes, Site site);
void copy_commit();
void copy_wait(int newest);
void mbarrier_init(void *barrier, int arrivals, Site site);
void mbarrier_init_fence();
void mbarrier_arrive(void *barrier, unsigned bytes, Site site);
void mbarrier_arrive_copied(void *barrier, Site site);
void mbarrier_wait(void *barrier, unsigned phase, bool old, Site site); // old: see Bulk::wait
void copy_bulk(void *to, const void *from, size_t bytes, void *barrier, Site site);
void fence_proxy_async();

template <int Bytes> constexpr int width_index = Bytes == 2 ? 0 : Bytes == 4 ? 1 : Bytes == 8 ? 2 : 3;

inline void count(uint64_t Counts::*what, uint64_t amount = 1) { current->counts->*what += amount; }

inline bool holds(const Range &range, const void *address) {
  return static_cast<size_t>(static_cast<const char *>(address) - range.start) < range.bytes;
}

constexpr unsigned of_weights = 1, of_cache = 2, of_scratch = 4, of_shared = 8; // buffers, by bit

// An access outside the buffers `allowed` ends the launch. Aligned accesses end in the buffer where they begin.
inline void check_buffer(const char *access, const void *address, unsigned allowed, Site site) {
  const Thread &self = *current;
  for (int kind = 0; kind < 3; ++kind)
    if ((allowed >> kind & 1) && holds(self.data[kind], address)) return;
  if ((allowed & of_shared) && holds(self.shared, address)) return;
  refuse(access, address, site);
}

template <int Bytes> inline void count_load(const char *access, int kind, const void *from, Site site) {
  const Thread &self = *current;
  const bool shared = holds(self.shared, from);
  if (!shared && !holds(self.data[kind], from)) refuse(access, from, site);
  self.counts->loaded[shared ? from_shared : kind][width_index<Bytes>] += Bytes;
}

// Shared memory begins at a multiple of 16 bytes on a GPU only: here its end touches inaccessible pages.
inline bool aligned(const void *address, size_t bytes) {
  const Range &shared = current->shared;
  const char *start = holds(shared, address) ? shared.start : nullptr;
  return static_cast<size_t>(static_cast<const char *>(address) - start) % bytes == 0;
}
inline void check_aligned(const void *address, size_t bytes, Site site) {
  if (!aligned(address, bytes)) trap("misaligned access", site);
}

inline void count_store_kv(const void *to, size_t bytes, Site site) {
  check_aligned(to, bytes, site);
  check_buffer("store_kv", to, of_cache, site);
  count(&Counts::stored_kv, bytes);
}

} // namespace host
