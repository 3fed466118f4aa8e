// Heads whose scores are made by tensor cores: queries as three bf16 terms, which together are exact, by eight keys.
#pragma once
#include "split_softmax.cuh"
#include "terms.cuh"

// Data exchanged by the threads of a block: the terms of one query; for each warp and head the weights of eight
// positions, then the factor that rescales the softmax of earlier ones.
struct QueryTerms {
  static constexpr int lines = (model::head_dim + line - 1) / line, at_once = 8;
  alignas(16) bf16 term[3][lines * line];
  alignas(16) float weight[block_warps][head_group][at_once + 4];
};

// Queries on tensor cores. The columns of a product are positions, and its rows are the terms of two heads.
struct TensorQueries : Queries {
  // equivalent: 2 -> 1: no head is of a pair beyond the last
  static constexpr int lines = QueryTerms::lines, at_once = QueryTerms::at_once, pairs = (head_group + 1) / 2;
  static constexpr int each =
      at_once > Split::positions ? at_once / Split::positions : 1; // positions of a lane's values

  QueryTerms &common;
  const int thread = thread_anew();
  Packet<16> terms[pairs][2 * lines] = {}; // one term, or none, of this lane's head in each pair
  SoftmaxState seen[pairs];                // that head's: maximum of the warp, sum of this lane's positions

  DEVICE explicit TensorQueries(QueryTerms &common) : common(common) {}
  DEVICE int lane() const { return thread & 31; }

  // Called by all threads of the block, after a block barrier that follows the call before.
  DEVICE void load_query(int h, const float *from) {
    for (int i = 4 * int(threadIdx.x); i < lines * line; i += 4 * block_threads) {
      float x[4] = {};
      UNROLL
      for (int j = 0; j < 4; ++j) x[j] = i < model::head_dim ? from[i + j] * scale() : 0;
      store_terms(x, i, common.term[0], lines * line, packet_of(i));
    }
    block_barrier();
    const int t = lane() / 4 % 4;
    UNROLL
    for (int k = 0; k < pairs; ++k) { // a comparison: an index would put the terms in local memory
      if (2 * k + lane() / 16 != h || t == 3) continue;
      UNROLL
      for (int i = 0; i < 2 * lines; ++i)
        terms[k][i] = load_packet<16>(common.term[t] + (i / 2 * 8 + lane() % 4 * 2 + i % 2) * 8);
    }
  }

  // As in Queries. A warp takes eight neighbouring positions; a lane has the scores of two, and the values of some.
  template <int N, int> DEVICE void attend_tile(const EntryUnit *key, const EntryUnit *value, int count) {
    ROLLED
    for (int start = warp() % group_warps * at_once; start < count; start += group_warps * at_once) {
      const auto position = [&](int i) { return min_of(start + i, count - 1); };
      Packet<16> keys[2 * lines];
      const auto row = [&](int i) { return EntryRow{key + position(i) * entry_units}; };
      // equivalent: constant changed or arithmetic replaced: where rows are full lines, comparing is superfluous
      row(lane() / 4).template load_pairs<lines, 1, 2>(begin_of_lane(lane()), model::head_dim % line == 0, keys);
      float scales[2];
      UNROLL
      for (int j = 0; j < 2; ++j) scales[j] = row(2 * (lane() % 4) + j).factor(0);
      UNROLL
      for (int k = 0; k < (N + 1) / 2; ++k) weigh(k, N, multiply_add<lines, 2>(terms[k], keys), scales, count - start);
      __syncwarp(); // all lanes have stored their weights
      float weight[N][each];
      UNROLL
      for (int h = 0; h < N; ++h) {
        const float *from = common.weight[warp()][h], keep = from[at_once];
        UNROLL
        for (int u = 0; u < each; ++u) weight[h][u] = place(u) < at_once ? from[place(u)] : 0;
        UNROLL
        for (int e = 0; e < elements; ++e) soft[h].value[e] *= keep;
      }
      __syncwarp(); // all lanes have read
      add_values<N, each>(value, weight, [&](int u) { return position(place(u)); });
    }
  }
  DEVICE int place(int u) const { return lane() / Split::group * each + u; }

  // Turns the scores of head pair k at `count` positions into weights. scales: those of the lane's two keys.
  DEVICE void weigh(int k, int heads, const Products<2> &products, const float (&scales)[2], int count) {
    const int q = lane() % 4, h = 2 * k + lane() / 16;
    auto scores = both_halves(products);
    float max = seen[k].max;
    UNROLL
    for (int j = 0; j < 2; ++j) {
      float &score = scores.value[j];
      score += __shfl_xor_sync(all_lanes, score, 4);
      score += __shfl_xor_sync(all_lanes, score, 8);
      score = 2 * q + j < count ? score * scales[j] : negative_infinity();
      max = fmaxf(max, score);
    }
    max = fmaxf(max, __shfl_xor_sync(all_lanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(all_lanes, max, 2));
    const float keep = rescale(seen[k].max, max);
    UNROLL
    for (int j = 0; j < 2; ++j) scores.value[j] = rescale(scores.value[j], max);
    seen[k].max = max;
    seen[k].sum = seen[k].sum * keep + scores.value[0] + scores.value[1];
    // equivalent: boundary moved: lanes 4 and 20 have the scores of lanes 0 and 16, and store them there
    // equivalent: 16 -> 15: lanes 15 and 31 have the scores of lanes 3 and 19, and store them there
    if (lane() % 16 >= 4 || // a copy of another lane's scores
        h >= heads)
      return;
    float *to = common.weight[warp()][h];
    to[2 * q] = scores.value[0];
    to[2 * q + 1] = scores.value[1];
    if (q == 0) to[at_once] = keep; // equivalent: 0 -> 1: four neighboring lanes have the same factor
  }

  DEVICE const auto &merged(int h) {
    UNROLL
    for (int k = 0; k < pairs; ++k) {
      if (k != h / 2) continue;
      float sum = seen[k].sum + __shfl_xor_sync(all_lanes, seen[k].sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
      // equivalent: initial value changed: a softmax is the same when every maximum is larger by one
      const float max = seen[k].max, other_max = __shfl_xor_sync(all_lanes, max, 16),
                  other_sum = __shfl_xor_sync(all_lanes, sum, 16);
      const bool own = lane() / 16 == h % 2;
      soft[h].max = own ? max : other_max;
      soft[h].sum = lane() < Split::group ? own ? sum : other_sum : 0; // the other lanes of an element add nothing
    }
    return Queries::merged(h);
  }
};
