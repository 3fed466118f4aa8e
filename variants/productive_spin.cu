// Idea        while one thread of a block waits at the barrier, the others pull the block's next weights into L2
// Hypothesis  the wait is dead time for memory; the first rows of the next matrix are known and never written, so they
//             may be fetched before the barrier opens
// Overrides   what the waiting block's other threads do
// Knobs       spin_bytes: per block and barrier
// Run         python -m experiments stack=[atomic_barrier,productive_spin] spin_bytes=16384
#include "common/device/decode.cuh"

template <class Base> struct ProductiveSpin : Base {
  template <Stage S> static DEVICE void while_waiting(const Context &c, int layer) {
    constexpr int query = model::heads * model::head_dim;
    if constexpr (S == Stage::embed) fetch_qkv(c, 0);
    if constexpr (S == Stage::attention) fetch<query>(layer_weights(c, weight_at::o, layer), model::hidden);
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
    fetch<model::hidden>(layer_weights(c, weight_at::qkv, layer),
                         (model::heads + 2 * model::kv_heads) * model::head_dim);
  }

  // The rows this block's warps take first stand together: block_warps rows of K, fewer at the end. Thread 0 waits.
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
