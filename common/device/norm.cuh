// RMSNorm (Zhang & Sennrich 2019, as in Qwen3): out = x / sqrt(mean(x^2) + eps) * weight.
#pragma once
#include "reduce.cuh"

// One block norms a vector of model::hidden elements. `out(i, value)` receives each of them.
template <class Out> DEVICE void rmsnorm(const float *x, const bf16 *weight, float *partial, Out out) {
  constexpr int width = 4;
  float sum = 0;
  for (int i = port::thread() * width; i < model::hidden; i += block_threads * width) {
    const auto a = port::load<Data::activations, 4 * width>(x + i);
    UNROLL for (int j = 0; j < width; ++j) {
      const float value = port::as_float(a.word[j]);
      sum = fmaf(value, value, sum);
    }
  }
  const float scale = 1.0f / sqrtf(block_sum(sum, partial) / model::hidden + model::rms_eps);
  for (int i = port::thread() * width; i < model::hidden; i += block_threads * width) {
    const auto a = port::load<Data::activations, 4 * width>(x + i);
    const auto w = port::load_weights<2 * width>(weight + i);
    UNROLL for (int j = 0; j < width; ++j) {
      const float gain = j % 2 == 0 ? bf16_low(w.word[j / 2]) : bf16_high(w.word[j / 2]);
      out(i + j, port::as_float(a.word[j]) * scale * gain);
    }
  }
}
