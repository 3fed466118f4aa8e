// Idea        some tiles of lm_head stay in L2 from one token to the next: their bulk copies have the policy
//             evict_last, all others evict_first
// Hypothesis  25 of 1,192 MB are L2 hits. They are tiles of lm_head, the one stage that waits for memory only,
//             while exchanges hide a part of a layer's loads; and about one in twelve all through it, not its first
//             ones, with which the ring fills at once, and then memory pauses: so it works on while L2 gives its share
// Overrides   nothing
// Run         python -m experiments variant=hot_l2 mb=24
#include "common/kernel/decode.cuh"
#include "common/kernel/ring.cuh"

template <class Base> struct HotL2 : Base {
  // Every row adds its share of a tile, and the row that completes one has its own tile kept: as many as the knob says,
  // evenly over all rows and so over all blocks, and the same ones for every token.
  template <Stage S, class Mine> static DEVICE L2 in_l2(int first, int rows) {
    if constexpr (S == Stage::lm_head) {
      constexpr size_t kept = min_of((knob::hot_l2::mb << 20) / Mine::row_bytes, model::vocab); // rows
      const auto due = [](int row) { return row * kept / (size_t(model::vocab) * Mine::per_tile); };
      return due(first + rows) > due(first) ? L2::keep : L2::pass;
    } else {
      return Base::template in_l2<S, Mine>(first, rows);
    }
  }
};
