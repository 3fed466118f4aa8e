// RMSNorm (Zhang & Sennrich 2019, as in Qwen3): out = x / sqrt(mean(x^2) + eps) * weight.
#pragma once
#include "reduce.cuh"

// One block normalizes a vector of model::hidden elements. `out(i, value)` receives each element in one of the block's
// threads. Called by all threads of the block.
template <class Self, class Out> DEVICE void rmsnorm(const float *x, const bf16 *weight, float *partial, Out out) {
  constexpr int width = Self::load_bytes / 2;
  float sum = 0;
  for (int i = port::thread() * width; i < model::hidden; i += block_threads * width) {
    const auto a = load_floats<width>(x + i);
    UNROLL
    for (int j = 0; j < width; ++j) sum = fmaf(a.value[j], a.value[j], sum);
  }
  const float scale = 1.0f / sqrtf(block_sum(sum, partial) / model::hidden + model::rms_eps);
  for (int i = port::thread() * width; i < model::hidden; i += block_threads * width) {
    const auto a = load_floats<width>(x + i);
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
template <class Self, Stage S>
DEVICE void rmsnorm_redundant(const Context &c, int layer, const float *x, const bf16 *weight, float *normalized) {
  float *out = tap<S>(c, layer);
  rmsnorm<Self>(x, weight, shared<Self>(c).sums, [&](int i, float value) {
    normalized[i] = value;
    if (port::block() == 0) port::store_activation(out + i, value);
  });
}
