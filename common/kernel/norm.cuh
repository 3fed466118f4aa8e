// RMSNorm (Zhang & Sennrich 2019): out = x / sqrt(mean(x^2) + eps) * weight.
#pragma once
#include "weights.cuh"

// The gains of norm S.
template <Stage S> DEVICE const Weight *gains(const Context &c, int layer) {
  if constexpr (S == Stage::input_norm) return layer_weights(c, weight_at::input_norm, layer);
  if constexpr (S == Stage::post_norm) return layer_weights(c, weight_at::post_norm, layer);
  if constexpr (S == Stage::final_norm) return c.weights + weight_at::final_norm;
}

// Multiplies elements by their gains; returns the sum of squares of the elements without gains.
template <int N, int Bytes, int Packets> DEVICE float times_gains(float (&x)[N], const Packet<Bytes> (&gain)[Packets]) {
  float squares = 0;
  UNROLL
  for (int i = 0; i < N; ++i) {
    squares = fmaf(x[i], x[i], squares);
    x[i] *= number_of(gain[2 * i / Bytes], i % (Bytes / 2));
  }
  return squares;
}

// One block normalizes the residual stream, model::hidden elements. `out(i, value)` receives each element in one of the
// block's threads. Called by all threads of the block.
template <class Self, Stage S, class Out> DEVICE void rmsnorm(const Context &c, int layer, Out out) {
  constexpr int width = Self::load_bytes / 2, stride = block_threads * width;
  constexpr int packets = (model::hidden + stride - 1) / stride; // per thread
  const auto x = Self::template stream<S, width>(c, layer);
  const auto at = [](int p) { return int(threadIdx.x) * width + p * stride; };
  Packet<2 * width> gain[packets] = {};
  Floats<width> a[packets] = {};
  float sum = 0;
  UNROLL
  for (int p = 0; p < packets; ++p) // before x, which may not have arrived
    if (at(p) < model::hidden) gain[p] = load_weights<2 * width>(gains<S>(c, layer) + at(p));
  UNROLL
  for (int p = 0; p < packets; ++p) {
    if (at(p) >= model::hidden) continue;
    a[p] = x(at(p));
    UNROLL
    for (int j = 0; j < width; ++j) sum = fmaf(a[p].value[j], a[p].value[j], sum);
  }
  const float scale = rsqrtf(block_sum(sum, shared<Self>(c).sums) / model::hidden + model::rms_eps);
  UNROLL
  for (int p = 0; p < packets; ++p) {
    if (at(p) >= model::hidden) continue;
    UNROLL
    for (int j = 0; j < width; ++j) {
      out(at(p) + j, a[p].value[j] * scale * number_of(gain[p], j));
    }
  }
}

// rmsnorm in every block, into `normalized` in its shared memory: only a block barrier has to follow the stage. Block 0
// also stores the stage's tap, which no block reads.
template <class Self, Stage S> DEVICE void rmsnorm_redundant(const Context &c, int layer, float *normalized) {
  float *out = tap<S>(c, layer);
  rmsnorm<Self, S>(c, layer, [&](int i, float value) {
    normalized[i] = value;
    if (blockIdx.x == 0) out[i] = value;
  });
}
