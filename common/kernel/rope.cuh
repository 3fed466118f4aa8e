// Rotary position embedding (Su et al. 2021) by halves: element i rotates with element i + head_dim / 2.
#pragma once
#include "reduce.cuh"

constexpr int rope_pairs = model::head_dim / 2;
constexpr double two_pi = 6.283185307179586476925;

// cos of all pairs, then sin.
DEVICE float *rope(const Context &c) { return c.scratch + scratch_at::rope; }

// Factor of a pair's frequency by Llama 3's scaling (common/model/rope.py): 1 for a pair that turns often within the
// training context, 1 / rope_factor for one that turns seldom.
DEVICE double kept_frequency(double frequency) {
  const double trained = model::rope_positions * frequency / two_pi; // turns in that context
  const double kept = (trained - model::rope_low) / (model::rope_high - model::rope_low);
  return kept >= 1 ? 1 : kept <= 0 ? 1 / model::rope_factor : kept + (1 - kept) / model::rope_factor;
}

// cos and sin of position * theta^(-2i / head_dim) for all pairs, this frequency scaled where the model does so, by the
// threads of one block; `first` is this thread's first pair. They are the same in all layers, so this runs once per
// token. It computes in double: at position 16,384 an fp32 angle is off by 1e-3. `out(i, value)` receives cos of all
// pairs, then sin.
template <class Out> DEVICE void rope_angles(int position, int first, Out out) {
  for (int i = first; i < rope_pairs; i += block_threads) {
    double frequency = exp(-2.0 * i / model::head_dim * log(model::rope_theta));
    // equivalent: branch forced: a factor of 1 leaves all of a frequency
    if constexpr (model::rope_factor != 1) frequency *= kept_frequency(frequency);
    double turns = position * frequency / two_pi;
    // equivalent: any whole number of turns may be taken away; near zero a GPU computes the sine faster
    turns -= rint(turns); // into [-1/2, 1/2], which needs no slow argument reduction
    double sine, cosine;
    sincospi(2 * turns, &sine, &cosine);
    out(i, float(cosine));
    out(rope_pairs + i, float(sine));
  }
}

// Gain of a norm, in global memory or copied to shared memory.
DEVICE float load_gain(const Weight *gain) { return load_weight(gain); }
DEVICE float load_gain(const float *gain) { return *gain; }

// RMSNorm, in a model with that trait, and rotation of one head `x`, by one warp. `cosines` has cos, then sin.
// `out(i, value)` receives each element in one of the lanes.
template <class Gain, class Out>
DEVICE void head_norm_rope(const float *x, const Gain *gain, const float *cosines, Out out) {
  const float *sines = cosines + rope_pairs;
  constexpr int pairs = (rope_pairs + 31) / 32; // per lane
  float a[pairs] = {}, b[pairs] = {}, gain_a[pairs] = {}, gain_b[pairs] = {};
  float cosine[pairs] = {}, sine[pairs] = {}, sum = 0;
  UNROLL
  for (int p = 0; p < pairs; ++p) { // all loads come before the sum of the lanes, which takes longer than they do
    const int i = lane() + 32 * p;
    if (i >= rope_pairs) continue;
    a[p] = x[i], b[p] = *(x + i + rope_pairs);
    if constexpr (model::qk_norm) gain_a[p] = load_gain(gain + i), gain_b[p] = load_gain(gain + i + rope_pairs);
    cosine[p] = cosines[i], sine[p] = sines[i];
  }
  UNROLL
  for (int p = 0; p < pairs; ++p) sum = fmaf(a[p], a[p], sum);
  UNROLL
  for (int p = 0; p < pairs; ++p) sum = fmaf(b[p], b[p], sum);
  const float scale = model::qk_norm ? rsqrtf(warp_sum(sum) / model::head_dim + model::rms_eps) : 1;
  UNROLL
  for (int p = 0; p < pairs; ++p) {
    const int i = lane() + 32 * p;
    if (i >= rope_pairs) continue;
    const float first = model::qk_norm ? a[p] * scale * gain_a[p] : a[p];
    const float second = model::qk_norm ? b[p] * scale * gain_b[p] : b[p];
    out(i, fmaf(first, cosine[p], -(second * sine[p])));
    out(i + rope_pairs, fmaf(second, cosine[p], first * sine[p]));
  }
}
