// Idea        some tiles of lm_head stay in L2 from one token to the next: their bulk copies have the policy
//             evict_last, all others evict_first
// Hypothesis  25 of 1,192 MB are L2 hits. They are tiles of lm_head, because it alone waits for memory only (exchanges
//             hide part of a layer's loads): about one in twelve throughout, because a run of hits would fill the ring
//             and leave memory idle
// Overrides   nothing
// Run         python -m experiments variant=hot_l2 mb=24
#include "common/kernel/decode.cuh"
#include "common/kernel/ring.cuh"

template <class Base> struct HotL2 : Base {
  // Keeps a tile if `due`, the number of kept tiles up to a row, increases within it: as many tiles as the knob says,
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
