// Idea        no megakernel: the same stages as separate kernels, replayed as one CUDA graph or launched one by one;
//             the end of a kernel replaces each grid barrier
// Hypothesis  the nodes of a graph cost about as much as grid barriers, so this is the rival that a megakernel has to
//             beat. how=pdl (programmatic dependent launch) hides most of that: a node starts while the one before it
//             runs, and prefetches the first weights of its stage into L2 before it waits for the end of that one
// Overrides   nothing
// Run         python -m experiments variant=graph how=launches
#include "common/kernel/decode.cuh"

template <class Base> struct Graph : Base {
  using Self = typename Base::Self;
  static constexpr int line = 128, ahead = 16 << 10; // bytes; `ahead` of each matrix per block

  // Start of a kernel with how=pdl. Called by all its threads.
  template <Stage S> static DEVICE void arrive(const Buffers &b, int layer) {
    if constexpr (S == Stage::qkv || S == Stage::o_proj || S == Stage::gate_up || S == Stage::down ||
                  S == Stage::lm_head) {
      const auto job = Self::template job<S>(Context{b, nullptr, 0, 0, 0}, layer);
      UNROLL
      for (int m = 0; m < job.matrices; ++m) fetch(job, m);
    }
    await_previous();
    launch_next();
  }

  // Prefetches this block's share of the first rows of matrix `m`, which warps multiply first.
  template <class Job> static DEVICE void fetch(const Job &job, int m) {
    const size_t bytes = size_t(job.rows) * Job::Row::bytes, first = size_t(int(blockIdx.x)) * ahead;
    // not executed: NVRTC unrolls four turns, and a block fetches a multiple of them ahead
    const char *from = static_cast<const char *>(job.row(m, 0).address);
    for (int at = int(threadIdx.x) * line; at < ahead; at += block_threads * line)
      if (first + at < bytes) prefetch_l2(from + first + at);
  }
};

template <class Kernel, Stage S> DEVICE void run_dependent(const Buffers &b, void *shared, int layer) {
  Kernel::template arrive<S>(b, layer);
  run_stage<Kernel, S>(b, shared, layer);
}
