// Rotary position embedding (Su et al. 2021) by halves: element i rotates with element i + head_dim / 2.
#pragma once
#include "weights.cuh"

constexpr int rope_pairs = model::head_dim / 2;
constexpr double two_pi = 6.283185307179586476925;

// cos of all pairs, then sin.
DEVICE float *rope(const Context &c) { return c.scratch + scratch_at::rope; }

// Factor of Llama 3's frequency scaling (common/model/rope.py): 1 for a pair that turns often within the training
// context, 1 / rope_factor for one that turns seldom.
DEVICE double kept_frequency(double frequency) {
  const double trained = model::rope_positions * frequency / two_pi; // turns in that context
  const double kept = (trained - model::rope_low) / (model::rope_high - model::rope_low);
  return kept >= 1 ? 1 : kept <= 0 ? 1 / model::rope_factor : kept + (1 - kept) / model::rope_factor;
}

// cos and sin of position * theta^(-2i / head_dim), with the model's scaling, for all pairs, once per token. By the
// threads of one block; `first` is this thread's first pair. In double: at position 16,384 an fp32 angle is off by
// 1e-3. `out(i, value)` receives cos of all pairs, then sin.
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

// RMSNorm, if model::qk_norm, and rotation of one head by one warp, four pairs to a lane. `x(i)` gives elements i to
// i + 3 and their partners; it may wait for them, so gains and angles are loaded before. `cosines` has cos, then sin.
// `out(i, value)` receives each element in one of the lanes.
template <class X, class Out> DEVICE void head_norm_rope(X x, const Weight *gains, const float *cosines, Out out) {
  constexpr int runs = (rope_pairs + 127) / 128; // runs of four pairs per lane
  const auto first = [](int r) { return 4 * lane() + 128 * r; };
  Floats<8> pairs[runs] = {}, angles[runs] = {};
  Packet<8> gain[runs][2] = {};
  UNROLL
  for (int r = 0; r < runs; ++r) {
    if (first(r) >= rope_pairs) continue;
    angles[r] = load_floats<8, 4, rope_pairs>(cosines + first(r));
    UNROLL
    for (int half = 0; half < 2 * model::qk_norm; ++half)
      gain[r][half] = load_weights<8>(gains + first(r) + half * rope_pairs);
  }
  float sum = 0;
  UNROLL
  for (int r = 0; r < runs; ++r) {
    if (first(r) < rope_pairs) pairs[r] = x(first(r));
    UNROLL
    for (int j = 0; j < 8; ++j) sum = fmaf(pairs[r].value[j], pairs[r].value[j], sum);
  }
  const float scale = model::qk_norm ? rsqrtf(warp_sum(sum) / model::head_dim + model::rms_eps) : 1;
  UNROLL
  for (int r = 0; r < runs; ++r) {
    if (first(r) >= rope_pairs) continue;
    float rotated[8];
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const float cosine = angles[r].value[j], sine = angles[r].value[4 + j];
      const auto normed = [&](int half) {
        const float one = pairs[r].value[4 * half + j];
        return model::qk_norm ? one * scale * number_of(gain[r][half], j) : one;
      };
      const float a = normed(0), b = normed(1);
      rotated[j] = fmaf(a, cosine, -(b * sine)), rotated[4 + j] = fmaf(b, cosine, a * sine);
    }
    UNROLL
    for (int j = 0; j < 8; ++j) out(first(r) + in_runs<4, rope_pairs>(j), rotated[j]);
  }
}
