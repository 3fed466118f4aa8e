// Idea        while some blocks compute attention, the other blocks prefetch the next weights into L2
// Hypothesis  attention occupies one block per query head; the other blocks wait at the barrier and read nothing. What
//             they prefetch of o, gate, up and down is an L2 hit in its stage, up to the size of L2
// Overrides   perform
// Run         python -m experiments variant=l2_prefetch prefetch_bytes=65536
#include "common/kernel/decode.cuh"

template <class Base> struct L2Prefetch : Base {
  using Self = typename Base::Self;

  template <Stage S> static DEVICE void perform(const Context &c, int layer) {
    Base::template perform<S>(c, layer);
    if constexpr (S == Stage::attention)
      if (int(blockIdx.x) >= Self::attention_blocks(c)) fetch(c, layer, gridDim.x - Self::attention_blocks(c));
  }

  // The last `idle` blocks of the grid share the chosen matrices, in order, up to prefetch_bytes each.
  static DEVICE void fetch(const Context &c, int layer, int idle) {
    using namespace knob::l2_prefetch;
    size_t left = prefetch_bytes;
    if constexpr (matrices_o) left -= fetch_matrix(Self::template job<Stage::o_proj>(c, layer), 0, left, idle);
    if constexpr (matrices_gate) left -= fetch_matrix(Self::template job<Stage::gate_up>(c, layer), 0, left, idle);
    if constexpr (matrices_up) left -= fetch_matrix(Self::template job<Stage::gate_up>(c, layer), 1, left, idle);
    if constexpr (matrices_down) left -= fetch_matrix(Self::template job<Stage::down>(c, layer), 0, left, idle);
  }

  // Prefetches this block's share of matrix `m` of a job, at most `budget` bytes; returns the bytes.
  template <class Job> static DEVICE size_t fetch_matrix(const Job &job, int m, size_t budget, int idle) {
    constexpr size_t line = 128;
    const size_t lines = size_t(job.rows) * Job::Row::bytes / line;
    const size_t share = (lines + idle - 1) / idle, limit = budget / line;
    const size_t first = (int(blockIdx.x) - (int(gridDim.x) - idle)) * share;
    const size_t mine = first >= lines ? 0 : lines - first < share ? lines - first : share;
    const size_t count = mine < limit ? mine : limit;
    const char *from = static_cast<const char *>(job.row(m, 0).address) + first * line;
    for (size_t i = int(threadIdx.x); i < count; i += block_threads) {
      if constexpr (knob::l2_prefetch::how_is_ldg)
        touch_weights(from + i * line);
      else
        prefetch_l2(from + i * line);
    }
    return count * line;
  }
};
