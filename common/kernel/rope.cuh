// Rotary position embedding (Su et al. 2021) in Qwen3's pairing: element i rotates with element i + head_dim / 2.
#pragma once
#include "reduce.cuh"

constexpr int rope_pairs = model::head_dim / 2;

// cos of all pairs, then sin.
DEVICE float *rope(const Context &c) { return c.scratch + scratch_at::rope; }

// cos and sin of position * theta^(-2i / head_dim) for all pairs, by the threads of one block; `first` is this thread's
// first pair. They are the same in all layers, so this runs once per token. It computes in double: at position 16,384
// an fp32 angle is off by 1e-3. `out(i, value)` receives cos of all pairs, then sin.
template <class Out> DEVICE void rope_angles(int position, int first, Out out) {
  for (int i = first; i < rope_pairs; i += block_threads) {
    const double frequency = exp(-2.0 * i / model::head_dim * log(model::rope_theta));
    double turns = position * frequency / 6.283185307179586476925;
    turns -= rint(turns); // into [-1/2, 1/2], which needs no slow argument reduction
    double sine, cosine;
    port::sincos_turns(turns, &sine, &cosine);
    out(i, float(cosine));
    out(rope_pairs + i, float(sine));
  }
}

// A weight of a norm, from where all weights are or from a copy of it in shared memory.
DEVICE float load_gain(const bf16 *gain) { return port::load_weight(gain); }
DEVICE float load_gain(const float *gain) { return *gain; }

// RMSNorm and rotation of one head `x`, by one warp. `cosines` has cos, then sin. `out(i, value)` receives each element
// in one of the lanes.
template <class Gain, class Out>
DEVICE void head_norm_rope(const float *x, const Gain *gain, const float *cosines, Out out) {
  const float *sines = cosines + rope_pairs;
  constexpr int pairs = (rope_pairs + 31) / 32; // of a lane
  float a[pairs] = {}, b[pairs] = {}, gain_a[pairs] = {}, gain_b[pairs] = {};
  float cosine[pairs] = {}, sine[pairs] = {}, sum = 0;
  UNROLL
  for (int p = 0; p < pairs; ++p) { // all loads come before the sum of the lanes, which takes longer than they do
    const int i = lane() + 32 * p;
    if (i >= rope_pairs) continue;
    a[p] = port::load_activation(x + i), b[p] = port::load_activation(x + i + rope_pairs);
    gain_a[p] = load_gain(gain + i), gain_b[p] = load_gain(gain + i + rope_pairs);
    cosine[p] = port::load_activation(cosines + i), sine[p] = port::load_activation(sines + i);
  }
  UNROLL
  for (int p = 0; p < pairs; ++p) sum = fmaf(a[p], a[p], sum);
  UNROLL
  for (int p = 0; p < pairs; ++p) sum = fmaf(b[p], b[p], sum);
  const float scale = port::rsqrt(warp_sum(sum) / model::head_dim + model::rms_eps);
  UNROLL
  for (int p = 0; p < pairs; ++p) {
    const int i = lane() + 32 * p;
    if (i >= rope_pairs) continue;
    const float first = a[p] * scale * gain_a[p], second = b[p] * scale * gain_b[p];
    out(i, fmaf(first, cosine[p], -(second * sine[p])));
    out(i + rope_pairs, fmaf(second, cosine[p], first * sine[p]));
  }
}
