// A softmax that is made in parts: by a warp tile by tile, by the warps of a block, and by several blocks, whose parts
// travel by value.
//
// The parts of blocks exist twice, for even and for odd turns, as the mail does. How many there are changes with the
// position, so all words of the next turn are made unwritten in every step, whoever wrote them; what orders two steps
// comes between.
#pragma once
#include "attention.cuh"
#include "mail.cuh"

constexpr int head_group = model::heads / model::kv_heads;                         // query heads that share a KV head
constexpr int most_parts = scratch_at::max_parts, part_size = model::head_dim + 4; // values; a packet: maximum, sum

// What a block attends to at once: heads of one KV head, whose cache is copied once, and of the positions before the
// token's those from `begin` to `end` - 1. The last part has the token itself, too.
struct Share {
  int head, heads, part, parts, begin, end;
};

// The shares of all blocks. A part has at least `Chunk` positions and begins with a tile of `PerTile`, which are no
// more; a block has one share where there are several parts, so that all parts of a head are made at the same time.
template <int Chunk, int PerTile> struct SharesOf {
  static DEVICE int parts(int position) {
    const int blocks = port::blocks() / model::kv_heads, most = blocks < most_parts ? blocks : most_parts;
    const int wanted = position / Chunk < most ? position / Chunk : most;
    return wanted < 1 ? 1 : wanted;
  }
  // Heads of a share: one, unless there are parts, or fewer blocks than heads.
  static DEVICE int together(int position) {
    return parts(position) > 1 || port::blocks() < model::heads ? head_group : 1;
  }
  static DEVICE int count(int position) { return model::heads / together(position) * parts(position); }
  static DEVICE Share at(int position, int number) {
    const int heads = together(position), all = parts(position), part = number % all;
    const int tiles = (position + PerTile - 1) / PerTile, end = tiles * (part + 1) / all * PerTile;
    return {number / all * heads, heads, part, all, tiles * part / all * PerTile, end < position ? end : position};
  }
};

// How lanes hold a head whose entries lie in shared memory, whatever width the stack loads the cache by.
constexpr int widest_load = 16;
struct Tiles {
  static constexpr int load_bytes = widest_load;
};

// A lane's elements of the heads of a share: their queries, and their softmax over what the lane has seen.
struct Heads {
  using Split = HeadLanes<Tiles>;
  static constexpr int width = Split::width, elements = Split::per_lane * width;
  float query[head_group][elements] = {};
  Softmax<elements> soft[head_group];

  // Takes the query of head h out of shared memory.
  DEVICE void ask(int h, const float *from) {
    const float scale = 1.0f / sqrtf(float(model::head_dim));
    UNROLL
    for (int p = 0; p < Split::per_lane; ++p) {
      const int packet = lane() % Split::group + p * Split::group;
      if (packet >= Split::packets) continue;
      const auto q = load_floats<width>(from + packet * width);
      UNROLL
      for (int k = 0; k < head_group; ++k) { // a comparison and not an index, which would be one of local memory
        if (k != h) continue;
        UNROLL
        for (int j = 0; j < width; ++j) query[k][p * width + j] = q.value[j] * scale;
      }
    }
  }

  // Attends to `count` neighbouring positions, of which each warp takes some, with as many heads as the share has. As
  // `attend`, but a key and a value are loaded once for all heads, and what was seen before is kept.
  DEVICE void see(int heads, const bf16 *key, const bf16 *value, int count) {
    for (int start = warp() * Split::positions; start < count; start += block_warps * Split::positions) {
      const int position = start + lane() / Split::group;
      const bool here = position < count;
      const int first = position * model::head_dim + lane() % Split::group * width;
      const auto mine = [&](int p) { return here && lane() % Split::group + p * Split::group < Split::packets; };
      float score[head_group] = {}, keep[head_group] = {};
      UNROLL
      for (int p = 0; p < Split::per_lane; ++p) {
        if (!mine(p)) continue;
        const auto k = port::load<Data::kv, Tiles::load_bytes>(key + first + p * Split::group * width);
        UNROLL
        for (int h = 0; h < head_group; ++h) {
          if (h >= heads) break;
          UNROLL
          for (int j = 0; j < width; j += 2) {
            score[h] = fmaf(bf16_low(k.word[j / 2]), query[h][p * width + j], score[h]);
            score[h] = fmaf(bf16_high(k.word[j / 2]), query[h][p * width + j + 1], score[h]);
          }
        }
      }
      UNROLL
      for (int h = 0; h < head_group; ++h) {
        if (h >= heads) break;
        const float sum = warp_sum<Split::group>(score[h]), max = here ? fmaxf(soft[h].max, sum) : soft[h].max;
        keep[h] = soft[h].rescale(soft[h].max, max);
        score[h] = here ? expf(sum - max) : 0;
        soft[h].max = max;
        soft[h].sum = fmaf(soft[h].sum, keep[h], score[h]);
      }
      UNROLL
      for (int p = 0; p < Split::per_lane; ++p) {
        if (!mine(p)) continue;
        const auto v = port::load<Data::kv, Tiles::load_bytes>(value + first + p * Split::group * width);
        UNROLL
        for (int h = 0; h < head_group; ++h) {
          if (h >= heads) break;
          UNROLL
          for (int j = 0; j < width; j += 2) {
            float *out = soft[h].value + p * width + j;
            out[0] = fmaf(out[0], keep[h], score[h] * bf16_low(v.word[j / 2]));
            out[1] = fmaf(out[1], keep[h], score[h] * bf16_high(v.word[j / 2]));
          }
        }
      }
    }
  }

  // Merges what the lanes of a warp have seen of head h; each then has it.
  DEVICE const auto &merged(int h) {
    UNROLL
    for (int mask = Split::group; mask < 32; mask *= 2) {
      const float other = port::shuffle_xor(soft[h].max, mask), max = fmaxf(soft[h].max, other);
      const float keep = soft[h].rescale(soft[h].max, max), take = soft[h].rescale(other, max);
      soft[h].max = max;
      soft[h].sum = soft[h].sum * keep + port::shuffle_xor(soft[h].sum, mask) * take;
      UNROLL
      for (int e = 0; e < elements; ++e)
        soft[h].value[e] = soft[h].value[e] * keep + port::shuffle_xor(soft[h].value[e], mask) * take;
    }
    return soft[h];
  }
};

// Merges the warps of a block. `out(i, max, sum, value)` as in attend_block. Called by all threads of the block.
// `parts` is in use until the block's next barrier.
template <int N, class Out> DEVICE void merge_warps(const Softmax<N> &soft, SoftmaxParts &parts, Out out) {
  using Split = HeadLanes<Tiles>;
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
  port::block_barrier();
  for (int i = port::thread(); i < model::head_dim; i += block_threads) {
    float max = parts.max[0], sum = 0, value = 0;
    for (int w = 1; w < block_warps; ++w) max = fmaxf(max, parts.max[w]);
    for (int w = 0; w < block_warps; ++w) {
      const float keep = soft.rescale(parts.max[w], max);
      sum = fmaf(parts.sum[w], keep, sum);
      value = fmaf(parts.value[w][i], keep, value);
    }
    out(i, max, sum, value);
  }
}

// Part `p` of a head: the place of its first word.
DEVICE float *part(const Context &c, unsigned turn, int layer, int head, int p) {
  const size_t heads = (turn % 2 * model::layers + layer) * model::heads + head;
  return c.scratch + scratch_at::parts + (heads * most_parts + p) * part_size;
}

// Makes all parts of a layer unwritten for the next turn: a share of them in each block. Called by all threads.
DEVICE void clear_parts(const Context &c, int layer) {
  float *first = part(c, c.turn + 1, layer, 0, 0);
  for (int i = port::block() * block_threads + port::thread(); i < model::heads * most_parts * part_size;
       i += port::blocks() * block_threads)
    port::publish(first + i, unwritten);
}

// Publishes element i of a part, and with the first one maximum and sum. A value that looks unwritten becomes another
// NaN.
DEVICE void send_part(const Context &c, int layer, int head, int p, int i, float max, float sum, float value) {
  float *to = part(c, c.turn, layer, head, p);
  const auto send = [=](int word, float x) {
    port::publish(to + word, port::as_bits(x) == unwritten ? unwritten >> 1 : port::as_bits(x));
  };
  send(i, value);
  if (i != 0) return;
  send(model::head_dim, max);
  send(model::head_dim + 1, sum);
}

// Merges the parts of some packets of a share's heads, a lane for each part; the blocks of the other parts merge the
// others. `out(i, value)` receives element i, counted through these heads. Called by all threads of a block, after it
// has sent its own part; it does not synchronize them.
template <class Out> DEVICE void merge_parts(const Context &c, int layer, const Share &share, Out out) {
  constexpr int packets = model::head_dim / 4, all_packets = head_group * packets, at_once = 32 / most_parts;
  const int begin = all_packets * share.part / share.parts, end = all_packets * (share.part + 1) / share.parts;
  for (int start = begin + warp() * at_once; start < end; start += block_warps * at_once) {
    const int packet = start + lane() / most_parts, p = lane() % most_parts;
    Packet<16> values = {}, scale = {};
    float max = negative_infinity();
    if (packet < end && p < share.parts) {
      const float *from = part(c, c.turn, layer, share.head + packet / packets, p);
      const auto arrived = [&] {
        values = port::look(from + packet % packets * 4);
        scale = port::look(from + model::head_dim);
        bool all = scale.word[0] != unwritten && scale.word[1] != unwritten;
        UNROLL
        for (int j = 0; j < 4; ++j) all = all && values.word[j] != unwritten;
        return all;
      };
      spin_until(arrived, [&] {
        report_wait(c, waited_for_values | (1 + static_cast<unsigned>(Stage::attention)), layer, packet * 4, p);
      });
      port::count_looked(from + packet % packets * 4);
      port::count_looked(from + model::head_dim);
      max = port::as_float(scale.word[0]);
    }
    float all = max;
    UNROLL
    for (int mask = most_parts / 2; mask > 0; mask /= 2) all = fmaxf(all, port::shuffle_xor(all, mask));
    const float keep = Softmax<1>::rescale(max, all);
    const float sum = warp_sum<most_parts>(port::as_float(scale.word[1]) * keep);
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const float value = warp_sum<most_parts>(port::as_float(values.word[j]) * keep);
      if (packet < end && p == 0) out(packet * 4 + j, value / sum);
    }
  }
}
