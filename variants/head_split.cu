// Idea        one block computes a KV head and its query heads, from the projection to the attention
// Hypothesis  a block reads only its own results, so two grid barriers between qkv and attention become block barriers;
//             but only kv_heads blocks read the qkv matrix and the other SMs idle, a loss where reading that matrix
//             takes longer than a barrier
// Overrides   qkv, qk_norm_rope, attention_blocks, attention, after
// Run         python -m experiments variant=head_split
#include "common/kernel/decode.cuh"

template <class Base> struct HeadSplit : Base {
  using Self = typename Base::Self;
  static constexpr int group = model::heads / model::kv_heads; // query heads that share a KV head

  // Number, in the order of the qkv rows, of the i-th head of KV head `kv`: its queries, its key, its value.
  static DEVICE int head(int kv, int i) {
    return i < group ? kv * group + i : model::heads + kv + (i - group) * model::kv_heads;
  }

  static DEVICE void qkv(const Context &c, int layer) {
    const float *x = Self::template activations<Stage::input_norm>(c, layer);
    for (int kv = blockIdx.x; kv < model::kv_heads; kv += int(gridDim.x)) {
      rows(c, layer, x, head(kv, 0), group);
      rows(c, layer, x, head(kv, group), 1);
      rows(c, layer, x, head(kv, group + 1), 1);
    }
  }
  // Projects `count` neighbouring heads by this block alone.
  static DEVICE void rows(const Context &c, int layer, const float *x, int first, int count) {
    const int row = first * model::head_dim;
    auto job = Self::template job<Stage::qkv>(c, layer);
    job.matrix[0] = job.row(0, row);
    job.x = x, job.rows = count * model::head_dim, job.part = 0, job.parts = 1;
    const auto emit = Self::template emit<Stage::qkv>(c, layer);
    Self::matvec(c, job, [&](int r, const auto &sums) { emit(row + r, sums); });
  }

  static DEVICE void qk_norm_rope(const Context &c, int layer) {
    for (int kv = blockIdx.x; kv < model::kv_heads; kv += int(gridDim.x))
      for (int i = warp(); i < group + 2; i += block_warps) Self::norm_rope_store(c, layer, head(kv, i));
  }

  static DEVICE int attention_blocks(const Context &) { return model::kv_heads; }

  static DEVICE void attention(const Context &c, int layer) {
    for (int kv = blockIdx.x; kv < model::kv_heads; kv += int(gridDim.x))
      for (int i = 0; i < group; ++i) Self::attend_head(c, layer, head(kv, i));
  }

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (S == Stage::qkv || S == Stage::qk_norm_rope)
      block_barrier();
    else
      Base::template after<S>(c, layer);
  }
};
