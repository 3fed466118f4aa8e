// Softmax split over tiles of a warp, warps of a block, and several blocks (flash decoding), whose partials are
// exchanged by value.
//
// Partials of blocks have a double buffer, for even and for odd turns, as the mail has. Their number changes with the
// position, so every step resets all words of the next turn to `unwritten`, whichever block wrote them; steps are
// ordered, so no block still writes or reads them.
#pragma once
#include "attention.cuh"
#include "mail.cuh"
#include "ring.cuh"

constexpr int head_group = model::heads / model::kv_heads; // query heads that share a KV head
constexpr int partial_size = model::head_dim + 4;          // values, then a packet with maximum and sum
constexpr int max_splits = scratch_at::partials_size / (model::layers * model::heads * partial_size); // per head

// Work of a block at one time: query heads of one KV head, whose cache is copied once, and positions `begin` to
// `end` - 1, all before the step's. The last split of a head also has the step's tokens, up to the one that attends.
struct KvSplit {
  int head, heads, index, splits, begin, end;
};

// The splits of all blocks. Where a head has several, each has about `Chunk` positions or more, in tiles of `PerTile`
// <= Chunk, and a block has one split, so all partials of a head are made at the same time.
template <int Chunk, int PerTile> struct KvSplits {
  static DEVICE int splits(int position) {
    // equivalent: boundary moved or bound off by one or ? -> && false ?: the number of splits decides the time
    const int blocks = int(gridDim.x) / model::kv_heads, most = blocks < max_splits ? blocks : max_splits;
    // equivalent: boundary moved or bound off by one or ? -> && false ?: the number of splits decides the time
    const int wanted = position / Chunk < most ? position / Chunk : most;
    // not executed: a model of one position, which has a text of its own, has no second split
    return wanted < 1 ? 1 : wanted;
  }
  // Query heads of a split: one, unless heads are split or there are fewer blocks than heads.
  static DEVICE int heads_per_split(int position) {
    // equivalent: operands swapped or boundary moved or model::heads -> model::kv_heads: one split takes any heads
    return splits(position) > 1 || int(gridDim.x) < model::heads ? head_group : 1;
  }
  static DEVICE int count(int position) { return model::heads / heads_per_split(position) * splits(position); }
  static DEVICE KvSplit at(int position, int number) {
    const int heads = heads_per_split(position), all = splits(position), index = number % all;
    // equivalent: 1 -> 0 or - -> +: a tile beyond the last is cut off at the position
    const int tiles = (position + PerTile - 1) / PerTile, end = tiles * (index + 1) / all * PerTile;
    return {number / all * heads, heads, index, all, tiles * index / all * PerTile, end < position ? end : position};
  }
};

// Elements of a head per packet in shared memory: the same for every load width and cache format.
constexpr int packet_elements = 8;

// Two groups of warps take the tiles of the cache in turn, so that a lane has several positions at once.
constexpr int warp_groups = block_warps % 2 == 0 ? 2 : 1, group_warps = block_warps / warp_groups;

// The softmax of one lane, as Softmax, but in powers of two (one instruction, ex2). The maximum begins at the lowest
// finite number, so no difference is NaN; the factor of a part that has seen no position is 0, or multiplies zeros.
struct SoftmaxState {
  float max = -3.40282347e38f, sum = 0;
};
template <int N> struct SoftmaxPartial : SoftmaxState {
  float value[N] = {};
};
DEVICE float rescale(float from, float to) { return exp2f(from - to); }

// A lane's elements of the query heads of a split, and its softmax over the positions that it has attended to.
struct Queries {
  using Split = HeadLanes<packet_elements>;
  static constexpr int width = Split::width, elements = Split::per_lane * width;
  float query[head_group][elements] = {};
  SoftmaxPartial<elements> soft[head_group];

  Queries() = default;
  DEVICE explicit Queries(const Context &) {}

  static DEVICE float scale() { return 1.44269504f / sqrtf(float(model::head_dim)); } // log2(e): exp2 in place of exp

  // Loads the query of head h from shared memory.
  DEVICE void load_query(int h, const float *from) {
    UNROLL
    for (int p = 0; p < Split::per_lane; ++p) {
      const int packet = lane() % Split::group + p * Split::group;
      if (packet >= Split::packets) continue;
      const auto q = load_floats<width>(from + packet * width);
      UNROLL
      for (int k = 0; k < head_group; ++k) { // a comparison: an index would put the queries in local memory
        if (k != h) continue;
        UNROLL
        for (int j = 0; j < width; ++j) query[k][p * width + j] = q.value[j] * scale();
      }
    }
  }

  // Adds `count` neighbouring positions, divided among the warps of a group, to the softmax of the first `N` heads. A
  // key and a value are loaded once for all heads. The softmax is rescaled once for `AtOnce` positions of a lane;
  // positions beyond the last repeat it with weight 0.
  template <int N, int AtOnce> DEVICE void attend_tile(const EntryUnit *key, const EntryUnit *value, int count) {
    constexpr int apart = group_warps * Split::positions;
    ROLLED
    for (int start = warp() % group_warps * Split::positions; start < count; start += AtOnce * apart) {
      // equivalent: index off by one: an array larger than needed
      float weight[N][AtOnce] = {}, scales[AtOnce];
      UNROLL
      for (float &scale : scales) scale = 1;
      const auto position = [&](int u) { return start + u * apart + lane() / Split::group; };
      const auto at = [&](int u) { return min_of(position(u), count - 1); };
      UNROLL
      for (int i = 0; i < AtOnce * Split::per_lane; ++i) {
        const int u = i / Split::per_lane, p = i % Split::per_lane;
        // equivalent: branch forced: merge_warps drops a lane without a packet; a key's missing packet is found
        if (!exists(p)) continue;
        const auto k = load(key, at(u), p);
        scales[u] = scale_of(k);
        UNROLL
        for (int j = 0; j < width; ++j) {
          const float x = number_of(k, j);
          UNROLL
          for (int h = 0; h < N; ++h) weight[h][u] = fmaf(x, query[h][p * width + j], weight[h][u]);
        }
      }
      UNROLL
      for (int h = 0; h < N; ++h) {
        float max = soft[h].max;
        UNROLL
        for (int u = 0; u < AtOnce; ++u) {
          // equivalent: initial value changed: a softmax is the same when every score is larger by one
          const float score = warp_sum<Split::group>(weight[h][u] * scales[u]);
          weight[h][u] = position(u) < count ? score : negative_infinity();
          max = fmaxf(max, weight[h][u]);
        }
        const float keep = rescale(soft[h].max, max);
        soft[h].max = max;
        soft[h].sum *= keep;
        UNROLL
        for (int e = 0; e < elements; ++e) soft[h].value[e] *= keep;
        UNROLL
        for (int u = 0; u < AtOnce; ++u) {
          weight[h][u] = rescale(weight[h][u], max);
          soft[h].sum += weight[h][u];
        }
      }
      add_values<N, AtOnce>(value, weight, at);
    }
  } // not executed: a model of one position has no earlier ones to loop over

  // True if the lane has a p-th packet; and that packet of a position.
  static DEVICE bool exists(int p) {
    return Split::packets % Split::group == 0 || lane() % Split::group + p * Split::group < Split::packets;
  }
  static DEVICE auto load(const EntryUnit *first, int position, int p) {
    return EntryRow{first + position * entry_units}.load<width * KvFormat::bits / 8>(
        (lane() % Split::group + p * Split::group) * width);
  }

  // Adds the weighted values of `AtOnce` positions, at(0) and on, to the first `N` heads.
  template <int N, int AtOnce, class At>
  DEVICE void add_values(const EntryUnit *value, const float (&weight)[N][AtOnce], At at) {
    UNROLL
    for (int i = 0; i < AtOnce * Split::per_lane; ++i) {
      const int u = i / Split::per_lane, p = i % Split::per_lane;
      // equivalent: branch forced: merge_warps drops a lane without a packet; a key's missing packet is found
      if (!exists(p)) continue;
      const auto v = load(value, at(u), p);
      UNROLL
      for (int j = 0; j < width; ++j) {
        const float x = number_of(v, j);
        UNROLL
        for (int h = 0; h < N; ++h) {
          float &sum = soft[h].value[p * width + j];
          sum = fmaf(weight[h][u] * scale_of(v), x, sum);
        }
      }
    }
  }

  // Merges the softmax of head h over the lanes of a warp; every group of lanes gets the result.
  DEVICE const auto &merged(int h) {
    UNROLL
    for (int mask = Split::group; mask < 32; mask *= 2) {
      const float other = __shfl_xor_sync(all_lanes, soft[h].max, mask), max = fmaxf(soft[h].max, other);
      const float keep = rescale(soft[h].max, max), take = rescale(other, max);
      soft[h].max = max;
      soft[h].sum = soft[h].sum * keep + __shfl_xor_sync(all_lanes, soft[h].sum, mask) * take;
      UNROLL
      for (int e = 0; e < elements; ++e)
        soft[h].value[e] = soft[h].value[e] * keep + __shfl_xor_sync(all_lanes, soft[h].value[e], mask) * take;
    }
    return soft[h];
  }
};

// Merges the warps of a block. `out(i, max, sum, value)` as in attend_block. Called by all threads of the block.
// `parts` is in use until the block's next barrier.
template <int N, class Out> DEVICE void merge_warps(const SoftmaxPartial<N> &soft, SoftmaxPartials &parts, Out out) {
  using Split = Queries::Split;
  if (lane() == 0) { // equivalent: branch forced: every lane has the warp's maximum and sum, and stores the same values
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
  UNROLL
  for (int turn = 0; turn < model::head_dim; turn += block_threads) { // a block of usual size has one
    const int i = turn + threadIdx.x;
    if (i >= model::head_dim) continue;
    float most[block_warps], sum = 0, value = 0;
    UNROLL
    for (int w = 0; w < block_warps; ++w) most[w] = parts.max[w];
    UNROLL
    for (int apart = 1; apart < block_warps; apart *= 2) { // a tree: three maxima one after the other, not seven
      UNROLL
      for (int w = 0; w + apart < block_warps; w += 2 * apart) most[w] = fmaxf(most[w], most[w + apart]);
    }
    const float max = most[0];
    UNROLL
    for (int w = 0; w < block_warps; ++w) {
      const float keep = rescale(parts.max[w], max);
      sum = fmaf(parts.sum[w], keep, sum);
      value = fmaf(parts.value[w][i], keep, value);
    }
    out(i, max, sum, value);
  }
}

// First word of the partial of split `p` of a head.
DEVICE float *partial_at(const Context &c, unsigned turn, int layer, int head, int p) {
  const size_t heads = (turn % 2 * model::layers + layer) * model::heads + head;
  return c.scratch + scratch_at::partials + (heads * max_splits + p) * partial_size;
}

// Resets all partials of a layer for the next turn, some in each block. Called by all threads.
DEVICE void reset_partials(const Context &c, int layer) {
  float *first = partial_at(c, c.turn + 1, layer, 0, 0);
  for (int i = int(blockIdx.x) * block_threads + int(threadIdx.x); i < model::heads * max_splits * partial_size;
       i += int(gridDim.x) * block_threads)
    store_relaxed(first + i, unwritten);
}

// Publishes element i of a partial, and with element 0 its maximum and sum. A value that looks unwritten becomes
// another NaN.
DEVICE void send_partial(const Context &c, int layer, int head, int p, int i, float max, float sum, float value) {
  float *to = partial_at(c, c.turn, layer, head, p);
  const auto send = [=](int word, float x) {
    store_relaxed(to + word, __float_as_uint(x) == unwritten ? unwritten >> 1 : __float_as_uint(x));
  };
  send(i, value);
  if (i != 0) return;
  send(model::head_dim, max);
  send(model::head_dim + 1, sum);
}

// Merges some packets of a split's heads, a lane for each partial; the blocks of the other splits merge the other
// packets. `out(i, value)` receives element i, counted through these heads. Called by all threads of a block after it
// has sent its own partial; it does not synchronize them.
template <class Out> DEVICE void merge_splits(const Context &c, int layer, const KvSplit &split, Out out) {
  constexpr int packets = model::head_dim / 4, all_packets = head_group * packets, at_once = 32 / max_splits;
  const int begin = all_packets * split.index / split.splits, end = all_packets * (split.index + 1) / split.splits;
  for (int start = begin + warp() * at_once; start < end; start += block_warps * at_once) {
    const int packet = start + lane() / max_splits, p = lane() % max_splits;
    Packet<16> values = {}, scale = {};
    float max = negative_infinity();
    if (packet < end && p < split.splits) {
      const float *from = partial_at(c, c.turn, layer, split.head + packet / packets, p);
      const auto arrived = [&] {
        values = load_relaxed(from + packet % packets * 4);
        scale = load_relaxed(from + model::head_dim);
        bool all = scale.word[0] != unwritten && scale.word[1] != unwritten;
        UNROLL
        for (int j = 0; j < 4; ++j) all = all && values.word[j] != unwritten;
        return all;
      };
      spin_until(arrived, [&] { report_wait(c, waited_for<Stage::attention>, layer, packet * 4, p); });
      max = __uint_as_float(scale.word[0]);
    }
    float all = max;
    UNROLL
    for (int mask = max_splits / 2; mask > 0; mask /= 2) all = fmaxf(all, __shfl_xor_sync(all_lanes, all, mask));
    const float keep = rescale(max, all);
    const float sum = warp_sum<max_splits>(__uint_as_float(scale.word[1]) * keep);
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const float value = warp_sum<max_splits>(__uint_as_float(values.word[j]) * keep);
      // equivalent: equality inverted or constant changed: every lane of a packet has and stores the same sums
      if (packet < end && p == 0) out(packet * 4 + j, __fdividef(value, sum));
    }
  }
}
