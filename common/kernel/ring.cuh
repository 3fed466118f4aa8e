// Shared by the copies into the ring in shared memory and the products out of it.
#pragma once
#include "params.cuh"

// Tiles that a ring has passed when a launch begins: 0, but for trials of an old ring (common/validate/prove.py). They
// are rounded down to whole turns, after which every barrier has the parity that it begins with.
#ifndef PASSED_TILES
#define PASSED_TILES 0u
#endif
template <int Slots> constexpr unsigned passed_tiles = PASSED_TILES / (2u * Slots) * (2u * Slots);
constexpr unsigned passed_jobs = PASSED_TILES / 2u * 2u;

constexpr int max_sums = 512 / block_warps; // products of a tile at most; a block finishes as many together

// not executed: NVRTC selects the smaller number; where it leaves a branch, that goes one way
DEVICE constexpr int min_of(int a, int b) { return a < b ? a : b; }

// How a loader warp fills a slot. In bulk, one lane asks for each run of bytes, and the slot's barrier counts bytes.
// Else all lanes copy 16 bytes at a time, and it counts each lane when the lane's copies have landed.
template <bool Bulk> struct SlotCopies {
  static constexpr int lanes = Bulk ? 1 : 32; // that call these functions; arrivals of the barrier, too

  // Before the copies of a tile of so many bytes.
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
  // After them.
  static DEVICE void end(Mbarrier *full) {
    if constexpr (!Bulk) mbarrier_arrive_copied(full);
  }
  // Asks for bytes in L2, and waits for nothing.
  static DEVICE void prefetch(const void *from, unsigned bytes) {
    if constexpr (Bulk) {
      prefetch_bulk(from, bytes);
    } else {
      constexpr unsigned line = 128;
      for (unsigned at = line * lane(); at < bytes; at += line * lanes)
        prefetch_l2(static_cast<const unsigned char *>(from) + at);
    }
  }
  // Before the loader ends: a thread waits for its own copies.
  static DEVICE void finish() {
    if constexpr (!Bulk) { // equivalent: branch forced: it waits for copies of which there are none
      copy_commit();
      copy_wait<0>();
    }
  }
  // Before copies of what others have stored: bulk copies take another way to memory than stores.
  static DEVICE void see_stores() {
    if constexpr (Bulk) fence_proxy_async();
  }
};
