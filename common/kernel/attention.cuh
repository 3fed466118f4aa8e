// Attention of one query head over the cached positions, with an online softmax (Milakov & Gimelshein 2018).
#pragma once
#include "entries.cuh"

// Division of a warp: `group` neighbouring lanes hold one head, in packets of `Width` elements, so a warp works on
// `positions` positions at once.
template <int Width> struct HeadLanes {
  static constexpr int width = Width;
  static constexpr int packets = model::head_dim / width;
  static constexpr int group = packets > 16 ? 32 : packets > 8 ? 16 : packets > 4 ? 8 : packets > 2 ? 4 : packets;
  static constexpr int per_lane = (packets + group - 1) / group;
  static constexpr int positions = 32 / group;
};

// The softmax of one lane over the positions it has seen: `sum` and `value` are divided by exp(max).
template <int N> struct Softmax {
  float max = negative_infinity(), sum = 0;
  float value[N] = {};

  // The factor for sum and values when the maximum changes; 0 for a part that has seen no position.
  static DEVICE float rescale(float from, float to) { return from == negative_infinity() ? 0.0f : expf(from - to); }
};

// Softmax of each warp of a block in shared memory, before they are merged.
struct SoftmaxPartials {
  float max[block_warps], sum[block_warps], value[block_warps][model::head_dim];
};

// One warp attends to positions first, first + stride, ... below `end`, HeadLanes::positions of them at once. Every
// group of lanes ends with the warp's result.
template <class Self> DEVICE auto attend(const Context &c, int layer, int head, int first, int end, int stride) {
  using Split = HeadLanes<EntryRow::width<Self::load_bytes>>;
  constexpr int width = Split::width, elements = Split::per_lane * width;
  const int kv_head = head / (model::heads / model::kv_heads), member = lane() % Split::group;
  const EntryUnit *key = keys(c, layer, kv_head), *value = values(c, layer, kv_head);
  const float scale = 1.0f / sqrtf(float(model::head_dim));

  float query[elements] = {};
  UNROLL
  for (int p = 0; p < Split::per_lane; ++p) {
    const int packet = member + p * Split::group;
    if (packet >= Split::packets) continue;
    const auto q = Self::template query<width>(c, layer, head, packet * width);
    UNROLL
    for (int j = 0; j < width; ++j) query[p * width + j] = q.value[j] * scale;
  }

  Softmax<elements> soft;
  for (int start = first; start < end; start += stride) {
    const int position = start + lane() / Split::group;
    const bool here = position < end;
    float score = 0;
    UNROLL
    for (int p = 0; p < Split::per_lane; ++p) {
      const int packet = member + p * Split::group;
      if (!here || packet >= Split::packets) continue;
      const EntryRow row{key + size_t(position) * entry_units};
      score =
          add_products(Self::template entry<Entry::key>(c, row, position, packet * width), query + p * width, score);
    }
    score = warp_sum<Split::group>(score);
    if (!here) continue;
    const float max = fmaxf(soft.max, score), keep = soft.rescale(soft.max, max), weight = expf(score - max);
    soft.max = max;
    soft.sum = fmaf(soft.sum, keep, weight);
    UNROLL
    for (int p = 0; p < Split::per_lane; ++p) {
      const int packet = member + p * Split::group;
      if (packet >= Split::packets) continue;
      const EntryRow row{value + size_t(position) * entry_units};
      const auto v = Self::template entry<Entry::value>(c, row, position, packet * width);
      float *out = soft.value + p * width;
      UNROLL
      for (int j = 0; j < width; ++j) out[j] = fmaf(out[j], keep, weight * scale_of(v) * number_of(v, j));
    }
  }

  UNROLL
  for (int mask = Split::group; mask < 32; mask *= 2) {
    const float other_max = __shfl_xor_sync(all_lanes, soft.max, mask), max = fmaxf(soft.max, other_max);
    const float keep = soft.rescale(soft.max, max), take = soft.rescale(other_max, max);
    soft.max = max;
    soft.sum = soft.sum * keep + __shfl_xor_sync(all_lanes, soft.sum, mask) * take;
    UNROLL
    for (int e = 0; e < elements; ++e)
      soft.value[e] = soft.value[e] * keep + __shfl_xor_sync(all_lanes, soft.value[e], mask) * take;
  }
  return soft;
}

// One block attends to positions begin .. end - 1 of one head. `out(i, max, sum, value)` receives element i of the
// softmax before the division by `sum`. Called by all threads of the block. `parts` is in use until the block's next
// barrier.
template <class Self, class Out>
DEVICE void attend_block(const Context &c, int layer, int head, int begin, int end, SoftmaxPartials &parts, Out out) {
  using Split = HeadLanes<EntryRow::width<Self::load_bytes>>;
  Self::prepare(c, layer, head, end);
  const auto soft =
      attend<Self>(c, layer, head, begin + warp() * Split::positions, end, block_warps * Split::positions);
  if (lane() == 0) {
    parts.max[warp()] = soft.max;
    parts.sum[warp()] = soft.sum;
  }
  UNROLL
  for (int p = 0; p < Split::per_lane; ++p) {
    const int packet = lane() + p * Split::group;
    if (lane() >= Split::group || packet >= Split::packets) continue;
    UNROLL
    for (int j = 0; j < Split::width; ++j)
      parts.value[warp()][packet * Split::width + j] = soft.value[p * Split::width + j];
  }
  block_barrier();
  for (int i = threadIdx.x; i < model::head_dim; i += block_threads) {
    float max = parts.max[0];
    // not executed: NVRTC knows the number of turns; where it leaves a branch, that goes one way
    for (int w = 1; w < block_warps; ++w) max = fmaxf(max, parts.max[w]);
    float sum = 0, value = 0;
    for (int w = 0; w < block_warps; ++w) {
      const float keep = soft.rescale(parts.max[w], max);
      sum = fmaf(parts.sum[w], keep, sum);
      value = fmaf(parts.value[w][i], keep, value);
    }
    out(i, max, sum, value);
  }
}
