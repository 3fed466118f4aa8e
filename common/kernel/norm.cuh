// RMSNorm (Zhang & Sennrich 2019, as in Qwen3): out = x / sqrt(mean(x^2) + eps) * weight.
#pragma once
#include "reduce.cuh"

// The gains of norm S.
template <Stage S> DEVICE const bf16 *gains(const Context &c, int layer) {
  if constexpr (S == Stage::input_norm) return layer_weights(c, weight_at::input_norm, layer);
  if constexpr (S == Stage::post_norm) return layer_weights(c, weight_at::post_norm, layer);
  if constexpr (S == Stage::final_norm) return c.weights + weight_at::final_norm;
}

// One block normalizes the residual stream, model::hidden elements. `out(i, value)` receives each element in one of the
// block's threads. Called by all threads of the block.
template <class Self, Stage S, class Out> DEVICE void rmsnorm(const Context &c, int layer, Out out) {
  constexpr int width = Self::load_bytes / 2;
  const auto x = Self::template stream<S, width>(c, layer);
  const bf16 *weight = gains<S>(c, layer);
  float sum = 0;
  for (int i = port::thread() * width; i < model::hidden; i += block_threads * width) {
    const auto a = x(i);
    UNROLL
    for (int j = 0; j < width; ++j) sum = fmaf(a.value[j], a.value[j], sum);
  }
  const float scale = port::rsqrt(block_sum(sum, shared<Self>(c).sums) / model::hidden + model::rms_eps);
  for (int i = port::thread() * width; i < model::hidden; i += block_threads * width) {
    const auto a = x(i);
    const auto w = port::load_weights<2 * width>(weight + i);
    UNROLL
    for (int j = 0; j < width; ++j) {
      const float gain = j % 2 == 0 ? bf16_low(w.word[j / 2]) : bf16_high(w.word[j / 2]);
      out(i + j, a.value[j] * scale * gain);
    }
  }
}

// The same in every block, into `normalized` in its shared memory: no grid barrier is needed after the stage, only a
// block barrier. Block 0 also stores the stage's tap, which no block reads.
template <class Self, Stage S> DEVICE void rmsnorm_redundant(const Context &c, int layer, float *normalized) {
  float *out = tap<S>(c, layer);
  rmsnorm<Self, S>(c, layer, [&](int i, float value) {
    normalized[i] = value;
    if (port::block() == 0) port::store_activation(out + i, value);
  });
}
