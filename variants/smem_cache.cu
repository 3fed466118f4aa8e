// Idea        each block copies the input vector of a stage into shared memory and multiplies from there
// Hypothesis  eight warps read the same 4 to 12 KB again for every row; from shared memory that is no L2 traffic
// Overrides   activations
// Run         python -m experiments variant=smem_cache
#include "common/kernel/decode.cuh"

template <class Base> struct SmemCache : Base {
  using Self = typename Base::Self;

  // The longest vector that a matrix is multiplied by.
  static constexpr int most(int a, int b) { return a > b ? a : b; }
  static constexpr int longest = most(model::hidden, most(model::query, model::intermediate));

  struct Shared : Base::Shared {
    alignas(16) float vector[longest];
  };

  // Called by all threads of the block, after a grid barrier: no thread still reads the vector before this one.
  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) {
    static_assert(Tap<S>::size <= longest, "the result of this stage does not fit the block's shared vector");
    // not executed: the device computes this address with the load below
    const float *from = Base::template activations<S>(c, layer);
    float *to = shared<Self>(c).vector;
    for (int i = int(threadIdx.x) * 4; i < Tap<S>::size; i += block_threads * 4) {
      const auto a = load_floats<4>(from + i); // equivalent: 4 -> 5: the fifth element is not used
      UNROLL
      for (int j = 0; j < 4; ++j) to[i + j] = a.value[j];
    }
    block_barrier();
    return to;
  }
};
