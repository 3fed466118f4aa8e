// Idea        each block copies a stage's input vector into shared memory and multiplies from there
// Hypothesis  eight warps read the same 4 to 12 KB row after row; from shared memory that costs no L1 or L2 traffic
// Overrides   where qkv, o_proj, gate_up, down and lm_head read their activations
// Knobs       none
// Run         python -m experiments variant=smem_cache
#include "common/device/decode.cuh"

template <class Base> struct SmemCache : Base {
  using Self = typename Base::Self;

  template <Stage S> static constexpr int width() {
    if constexpr (S == Stage::attention)
      return model::heads * model::head_dim;
    else if constexpr (S == Stage::gate_up)
      return model::intermediate;
    else
      return model::hidden;
  }
  static constexpr int widest() {
    const int a = width<Stage::attention>(), b = width<Stage::gate_up>(), c = model::hidden;
    return a > b ? (a > c ? a : c) : (b > c ? b : c);
  }

  struct Shared : Base::Shared {
    alignas(16) float vector[widest()];
  };

  // Called by all threads of the block, behind a grid barrier: whoever read the last vector is done with it.
  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) {
    const float *from = Base::template activations<S>(c, layer);
    float *to = shared<Self>(c).vector;
    for (int i = port::thread() * 4; i < width<S>(); i += block_threads * 4) {
      const auto a = load_floats<4>(from + i);
      UNROLL
      for (int j = 0; j < 4; ++j) to[i + j] = a.value[j];
    }
    port::block_barrier();
    return to;
  }
};
