// Idea        L2 keeps some tiles of lm_head from one token to the next: their bulk copies ask it to give them up last,
//             all others to be given up first
// Hypothesis  24 MB of 1,192 MB need not come out of memory again. They are tiles of lm_head, which waits for memory
//             only, while exchanges hide a part of a layer's loads; and one in twelve all through it, not its first
//             ones, which the ring has before the stage begins: so memory works on while L2 gives its share
// Overrides   nothing
// Run         python -m experiments variant=hot_l2 mb=24
#include "common/kernel/decode.cuh"
#include "common/kernel/ring.cuh"

template <class Base> struct HotL2 : Base {
  // A tile is kept where the next one is due if every row adds its share of one: as many whole tiles as the knob says,
  // evenly over all rows and so over all blocks, whatever the grid is.
  template <Stage S, class Mine> static DEVICE L2 in_l2(int first, int rows) {
    if constexpr (S == Stage::lm_head) {
      constexpr size_t kept = fewer((knob::hot_l2::mb << 20) / Mine::row_bytes, model::vocab); // rows
      const auto due = [](int row) { return row * kept / (size_t(model::vocab) * Mine::per_tile); };
      return due(first + rows) > due(first) ? L2::keep : L2::pass;
    } else {
      return Base::template in_l2<S, Mine>(first, rows);
    }
  }
};
