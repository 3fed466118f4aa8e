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
    if constexpr (S == Stage::embed) fetch<model::hidden>(qkv_of(c, 0));
    if constexpr (S == Stage::attention) fetch<query>(layer_weights(c, weight_at::o, layer));
    if constexpr (S == Stage::o_proj) {
      fetch<model::hidden>(layer_weights(c, weight_at::gate, layer));
      fetch<model::hidden>(layer_weights(c, weight_at::up, layer));
    }
    if constexpr (S == Stage::gate_up) fetch<model::intermediate>(layer_weights(c, weight_at::down, layer));
    if constexpr (S == Stage::down)
      fetch<model::hidden>(layer + 1 < model::layers ? qkv_of(c, layer + 1) : c.weights + weight_at::lm_head);
  }

  static DEVICE const bf16 *qkv_of(const Context &c, int layer) { return layer_weights(c, weight_at::qkv, layer); }

  // The rows this block's warps take first stand together: block_warps rows of K. Thread 0 is the one that waits.
  template <int K> static DEVICE void fetch(const bf16 *matrix) {
    constexpr int line = 128, rows = block_warps * K * sizeof(bf16);
    constexpr int bytes = rows < knob::productive_spin::spin_bytes ? rows : knob::productive_spin::spin_bytes;
    const char *from = reinterpret_cast<const char *>(matrix + size_t(port::block()) * block_warps * K);
    for (int at = (port::thread() - 1) * line; at < bytes; at += (block_threads - 1) * line) port::prefetch_l2(from + at);
  }
};
