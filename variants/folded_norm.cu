// Idea        RMSNorm as a factor: out = sum W (gain * x) / sqrt(mean x^2 + eps). Products do not wait for the norm,
//             and the gains are loaded before the barrier ahead of it
// Hypothesis  two grid barriers per layer are saved as by redundant_rmsnorm (56 of 227 at 28 layers), and also a block
//             barrier, a second pass over x, and a wait for gains after the sum
// Overrides   normalize, after, activations, emit
// Run         python -m experiments variant=folded_norm
#include "common/kernel/decode.cuh"

template <class Base> struct FoldedNorm : Base {
  using Self = typename Base::Self;
  static constexpr int width = 4; // elements of one load of x
  static constexpr int packets = (model::hidden + block_threads * width - 1) / (block_threads * width);

  struct Shared : Base::Shared {
    alignas(16) float gained[model::hidden]; // gain * x
    float squares[block_warps];              // sum of x^2, by warp
  };
  struct Gains {
    Packet<2 * width> packet[packets] = {};
  };

  static constexpr bool here(Stage s) { return s == Stage::input_norm || s == Stage::post_norm; }

  // The norm after a stage is done here, so that its gains are under way during the barrier.
  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (S == Stage::o_proj) {
      followed_by<S, Stage::post_norm>(c, layer, layer);
    } else if constexpr (S == Stage::embed) {
      followed_by<S, Stage::input_norm>(c, layer, 0);
    } else if constexpr (S == Stage::down) {
      if (layer + 1 < model::layers)
        followed_by<S, Stage::input_norm>(c, layer, layer + 1);
      else
        Base::template after<S>(c, layer);
    } else if constexpr (!here(S)) {
      Base::template after<S>(c, layer);
    }
  }

  template <Stage S, Stage Norm> static DEVICE void followed_by(const Context &c, int layer, int next) {
    Gains gain;
    UNROLL
    for (int p = 0; p < packets; ++p)
      if (at(p) < model::hidden) gain.packet[p] = load_weights<2 * width>(gains<Norm>(c, next) + at(p));
    Base::template after<S>(c, layer);
    const auto x = Self::template stream<Norm, width>(c, next);
    auto &s = shared<Self>(c);
    float sum = 0;
    UNROLL
    for (int p = 0; p < packets; ++p) {
      if (at(p) >= model::hidden) continue;
      const auto a = x(at(p));
      UNROLL
      for (int j = 0; j < width; ++j) {
        const unsigned pair = gain.packet[p].word[j / 2];
        sum = fmaf(a.value[j], a.value[j], sum);
        s.gained[at(p) + j] = a.value[j] * (j % 2 == 0 ? bf16_low(pair) : bf16_high(pair));
      }
    }
    sum = warp_sum(sum);
    if (lane() == 0) s.squares[warp()] = sum;
    block_barrier();
  }
  // First element of this thread's packet p.
  static DEVICE int at(int p) { return (p * block_threads + int(threadIdx.x)) * width; }

  // Stores the tap, which no block reads, in a block with the fewest rows of the next stage.
  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    if constexpr (!here(S)) {
      Base::template normalize<S>(c, layer);
    } else if (blockIdx.x == gridDim.x - 1) {
      const float scale = factor(c);
      const auto publish = Self::template publish<S>(c, layer);
      for (int i = threadIdx.x; i < model::hidden; i += block_threads) publish(i, shared<Self>(c).gained[i] * scale);
    }
  }

  static DEVICE float factor(const Context &c) {
    float sum = 0;
    UNROLL
    for (int w = 0; w < block_warps; ++w) sum += shared<Self>(c).squares[w];
    return rsqrtf(sum / model::hidden + model::rms_eps);
  }

  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) {
    if constexpr (here(S))
      return shared<Self>(c).gained;
    else
      return Base::template activations<S>(c, layer);
  }

  template <Stage S> static DEVICE auto emit(const Context &c, int layer) {
    const auto finish = Base::template emit<S>(c, layer);
    if constexpr (here(input_of(S))) {
      const float scale = factor(c);
      return [=](int row, const auto &sums) {
        // equivalent: / -> *: a scaled value beyond the last sum is not read
        constexpr int count = sizeof sums / sizeof sums[0];
        float scaled[count];
        UNROLL
        for (int m = 0; m < count; ++m) scaled[m] = sums[m] * scale;
        finish(row, scaled);
      };
    } else {
      return finish;
    }
  }
};
