// Idea        while one thread of a block waits at the grid barrier, the other threads prefetch the block's next
//             weights into L2
// Hypothesis  memory idles during the wait; the rows that a block reads next are known and never written, so they may
//             be prefetched before the barrier opens
// Overrides   while_waiting
// Run         python -m experiments stack=[atomic_barrier,productive_spin] spin_bytes=16384
#include "common/kernel/decode.cuh"

template <class Base> struct ProductiveSpin : Base {
  using Self = typename Base::Self;

  template <Stage S> static DEVICE void while_waiting(const Context &c, int layer) {
    if constexpr (S == Stage::embed) fetch<Stage::qkv>(c, 0);
    if constexpr (S == Stage::attention) fetch<Stage::o_proj>(c, layer);
    if constexpr (S == Stage::o_proj) {
      fetch<Stage::gate_up>(c, layer, 0);
      fetch<Stage::gate_up>(c, layer, 1);
    }
    if constexpr (S == Stage::gate_up) fetch<Stage::down>(c, layer);
    if constexpr (S == Stage::down) {
      if (layer + 1 < model::layers)
        fetch<Stage::qkv>(c, layer + 1);
      else
        fetch<Stage::lm_head>(c, 0);
    }
  }

  // Prefetches the first row of each warp in matrix `m` of stage S: block_warps neighbouring rows, fewer at the end of
  // the matrix. Called by all threads but thread 0, which waits.
  template <Stage S> static DEVICE void fetch(const Context &c, int layer, int m = 0) {
    constexpr int line = 128;
    const auto job = Self::template job<S>(c, layer);
    const int first = int(blockIdx.x) * block_warps, left = job.rows - first;
    const int whole = (left < block_warps ? left : block_warps) * decltype(job)::Row::bytes;
    const int bytes = whole < knob::productive_spin::spin_bytes ? whole : knob::productive_spin::spin_bytes;
    const auto *from = static_cast<const char *>(job.row(m, first).address);
    for (int at = (threadIdx.x - 1) * line; at < bytes; at += (block_threads - 1) * line) prefetch_l2(from + at);
  }
};
