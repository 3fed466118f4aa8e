// Where threads meet: barriers, mbarriers, and the bulk copies that complete them.
#pragma once
#include <cstdint>
#include <vector>

namespace ptx {

struct Warp;
struct In;

struct Barrier {
  struct Waiting {
    Warp *warp;
    uint32_t mask;
    const In *in;
  };
  uint32_t arrived = 0, expected = 0; // threads of whole warps; expected: 0 for all of the block
  uint32_t yes = 0, voters = 0;       // lanes with a true predicate, and all with one, see barrier.red
  const In *first = nullptr;
  std::vector<Waiting> waiting;
};

struct Mbarrier {
  uint32_t expected, pending, phase;
  int64_t bytes;         // still to come
  uint32_t index;        // in the block
  uint32_t promised = 0; // arrivals pending on copies in flight
  // The last copy that a phase carries, phases up to that one, and phases over that some thread has seen to be over.
  const In *copy = nullptr;
  Warp *copier = nullptr;
  uint32_t lane = 0, carried = 0, seen_over = 0;
  void carries(Warp &w, const In *in, int by) { copier = &w, copy = in, lane = 1u << by, carried = phase + 1; }
};

struct Bulk { // a bulk copy, or the arrival of lanes when the copies before number `before` of their warp have landed
  uint8_t *to;
  const uint8_t *from;
  uint32_t bytes, barrier;
  uint64_t due; // turn of the scheduler
  const In *in;
  Warp *warp;
  uint32_t lanes = 0;
  uint64_t before = 0;
};

} // namespace ptx
