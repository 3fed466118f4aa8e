// The ring in shared memory: what its loader and the products out of it share.
#pragma once
#include "params.cuh"

// Tiles that a ring has passed when a launch begins: 0, except in trials near overflow (common/validate/prove.py).
// Rounded down to two turns of the ring, after which every Mbarrier has its first parity again.
#ifndef PASSED_TILES
#define PASSED_TILES 0u
#endif
template <int Slots> constexpr unsigned passed_tiles = PASSED_TILES / (2u * Slots) * (2u * Slots);
constexpr unsigned passed_jobs = PASSED_TILES / 2u * 2u;

constexpr int max_sums = 512 / block_warps; // most rows of a tile, and most sums that a block finishes together

// not executed: NVRTC selects the smaller number; where it leaves a branch, that goes one way
DEVICE constexpr int min_of(int a, int b) { return a < b ? a : b; }

// Copies of a loader warp into a slot. In bulk one lane issues them, and the slot's Mbarrier counts bytes; otherwise
// all lanes copy 16 bytes at a time, and it counts lanes whose copies have landed.
template <bool Bulk> struct SlotCopies {
  static constexpr int lanes = Bulk ? 1 : 32; // lanes that call these functions = arrivals at the Mbarrier

  // Called before the copies of a tile of `bytes`.
  static DEVICE void begin(Mbarrier *full, unsigned bytes) {
    if constexpr (Bulk) mbarrier_arrive_expect(full, bytes);
  }
  static DEVICE void copy(void *slot, const void *from, unsigned bytes, Mbarrier *full, L2 lines = L2::pass) {
    if constexpr (Bulk) {
      copy_bulk(slot, from, bytes, full, lines);
    } else {
      const auto *first = static_cast<const unsigned char *>(from);
      auto *to = static_cast<unsigned char *>(slot);
      for (unsigned at = 16 * lane(); at < bytes; at += 16 * lanes) copy_async(to + at, first + at, lines);
    }
  }
  static DEVICE void copy(void *, const float *, unsigned, Mbarrier *, L2 = L2::pass) = delete; // scratch changes
  // Called after them.
  static DEVICE void end(Mbarrier *full) {
    if constexpr (!Bulk) mbarrier_arrive_copied(full);
  }
  static DEVICE void prefetch(const void *from, unsigned bytes) {
    if constexpr (Bulk) {
      prefetch_bulk(from, bytes);
    } else {
      constexpr unsigned line = 128;
      for (unsigned at = line * lane(); at < bytes; at += line * lanes)
        prefetch_l2(static_cast<const unsigned char *>(from) + at);
    }
  }
  // Called before the loader ends: no thread may end while its copies are in flight.
  static DEVICE void finish() {
    if constexpr (!Bulk) { // equivalent: branch forced: it waits for copies of which there are none
      copy_commit();
      copy_wait<0>();
    }
  }
  // Called before copies of what others have stored: bulk copies go through the async proxy.
  static DEVICE void see_stores() {
    if constexpr (Bulk) fence_proxy_async();
  }
};
