// Idea        while one thread of a block waits at the grid barrier, the other threads prefetch the block's next
//             weights into L2
// Hypothesis  memory idles during the wait; the rows that a block reads next are known and never written, so they may
//             be prefetched before the barrier opens
// Overrides   while_waiting
// Run         python -m experiments stack=[atomic_barrier,productive_spin] spin_bytes=16384
#include "common/kernel/decode.cuh"

template <class Base> struct ProductiveSpin : Base {
  template <Stage S> static DEVICE void while_waiting(const Context &c, int layer) {
    if constexpr (S == Stage::embed) fetch_qkv(c, 0);
    if constexpr (S == Stage::attention) fetch<model::query>(layer_weights(c, weight_at::o, layer), model::hidden);
    if constexpr (S == Stage::o_proj) {
      fetch<model::hidden>(layer_weights(c, weight_at::gate, layer), model::intermediate);
      fetch<model::hidden>(layer_weights(c, weight_at::up, layer), model::intermediate);
    }
    if constexpr (S == Stage::gate_up)
      fetch<model::intermediate>(layer_weights(c, weight_at::down, layer), model::hidden);
    if constexpr (S == Stage::down) {
      if (layer + 1 < model::layers)
        fetch_qkv(c, layer + 1);
      else
        fetch<model::hidden>(c.weights + weight_at::lm_head, model::vocab);
    }
  }

  static DEVICE void fetch_qkv(const Context &c, int layer) {
    fetch<model::hidden>(layer_weights(c, weight_at::qkv, layer), model::query + 2 * model::kv);
  }

  // Prefetches the first row of each warp of this block: block_warps neighbouring rows of K elements, fewer at the end
  // of the matrix. Called by all threads but thread 0, which waits.
  template <int K> static DEVICE void fetch(const bf16 *matrix, int rows) {
    constexpr int line = 128;
    const int first = port::block() * block_warps, left = rows - first;
    const int whole = (left < block_warps ? left : block_warps) * K * int(sizeof(bf16));
    const int bytes = whole < knob::productive_spin::spin_bytes ? whole : knob::productive_spin::spin_bytes;
    const char *from = reinterpret_cast<const char *>(matrix + size_t(first) * K);
    for (int at = (port::thread() - 1) * line; at < bytes; at += (block_threads - 1) * line)
      port::prefetch_l2(from + at);
  }
};
