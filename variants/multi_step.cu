// Idea        the loop over tokens inside the kernel: one launch decodes several tokens
// Hypothesis  the launch overhead, and the drain and fill of the pipeline at both ends of a launch, are paid once for
//             several tokens; the cost is one grid barrier between two tokens
// Overrides   decode
// Run         python -m experiments variant=multi_step steps=16
#include "common/kernel/decode.cuh"

template <class Base> struct MultiStep : Base {
  using Self = typename Base::Self;

  static DEVICE void decode(const Context &first, int steps) {
    Context c = first;
    for (int done = 0;;) {
      Self::step(c);
      if (++done == steps) return;
      // After this barrier the token is stored, and no block still reads results of this step.
      Self::template barrier<Stage::argmax>(c, 0);
      c = begin(c, c.shared);
    }
  }
};
