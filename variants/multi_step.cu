// Idea        the token loop inside the kernel: one launch decodes several tokens
// Hypothesis  launch overhead and the drain and fill of the pipeline at its ends are paid once for all of them;
//             one grid barrier between two tokens is the price
// Overrides   the loop around the step
// Knobs       steps: tokens per launch
// Run         python -m experiments variant=multi_step steps=16
#include "common/device/decode.cuh"

template <class Base> struct MultiStep : Base {
  using Self = typename Base::Self;

  static DEVICE void decode(const Context &first, int steps) {
    Context c = first;
    for (int done = 0;;) {
      Self::step(c);
      if (++done == steps) return;
      Self::template barrier<Stage::argmax>(c, 0); // the token is chosen, and nobody reads this step's results any more
      c = begin(c, c.shared);
    }
  }
};
