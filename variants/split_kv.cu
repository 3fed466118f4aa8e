// Idea        attention on all blocks: each computes a chunk of the positions of one head, and the parts are merged
// Hypothesis  one block per head reads the cache at the bandwidth of one SM; from a few hundred positions on, attention
//             is the longest stage and the other SMs idle. Within one chunk nothing changes; beyond it, one barrier a
//             layer is added
// Overrides   attention_blocks, attention
// Run         python -m experiments variant=split_kv chunk=64
#include "common/kernel/decode.cuh"

template <class Base> struct SplitKv : Base {
  using Self = typename Base::Self;
  static constexpr int chunk = knob::split_kv::chunk, partial_size = model::head_dim + 2;
  static_assert(size_t(model::heads) * ((model::positions + chunk - 1) / chunk) * partial_size <=
                    scratch_at::workspace_size,
                "chunk is too small for the workspace");

  static DEVICE int chunks(const Context &c) { return c.position / chunk + 1; }
  static DEVICE float *part(const Context &c, int task) {
    return c.scratch + scratch_at::workspace + task * partial_size;
  }

  static DEVICE int attention_blocks(const Context &c) {
    const int tasks = model::heads * chunks(c);
    return chunks(c) == 1 ? Base::attention_blocks(c) : tasks < int(gridDim.x) ? tasks : gridDim.x;
  }

  static DEVICE void attention(const Context &c, int layer) {
    // equivalent: equality inverted or branch forced: attention and merge take any number of chunks
    if (chunks(c) == 1) return Base::attention(c, layer);
    for (int task = blockIdx.x; task < model::heads * chunks(c); task += int(gridDim.x)) {
      const int head = task / chunks(c), begin = task % chunks(c) * chunk;
      const int end = begin + chunk < c.position + 1 ? begin + chunk : c.position + 1;
      float *out = part(c, task);
      attend_block<Self>(c, layer, head, begin, end, shared<Self>(c).softmax,
                         [&](int i, float max, float sum, float value) {
                           *(out + 2 + i) = value;
                           if (i != 0) return;
                           *out = max;
                           out[1] = sum;
                         });
      block_barrier(); // all threads have read the softmax parts before the next task overwrites them
    }
    Self::template barrier<Stage::attention>(c, layer);
    for (int head = blockIdx.x; head < model::heads; head += int(gridDim.x)) merge(c, layer, head);
  }

  // Merges the chunks of one head, one thread per element. Every chunk has at least one position, so no maximum is
  // -inf.
  static DEVICE void merge(const Context &c, int layer, int head) {
    const float *first = part(c, head * chunks(c));
    for (int i = threadIdx.x; i < model::head_dim; i += block_threads) {
      float max = *first;
      // equivalent: 1 -> 0: the maximum of the first chunk is there already
      for (int n = 1; n < chunks(c); ++n) max = fmaxf(max, first[n * partial_size]);
      float sum = 0, value = 0;
      for (int n = 0; n < chunks(c); ++n) {
        const float *from = first + n * partial_size;
        const float keep = expf(*from - max);
        sum = fmaf(from[1], keep, sum);
        value = fmaf(*(from + 2 + i), keep, value);
      }
      Self::template publish<Stage::attention>(c, layer, head * model::head_dim)(i, value / sum);
    }
  }
};
