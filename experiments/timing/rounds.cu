// Rounds of one exchange: every block publishes its share of the result of gate_up, as the stack below does it, and
// waits for all of it. A word is the word of the round before, plus one, so that a round needs the one before it, and
// the last words count the rounds. With reads=1 the words are also sums of rows of the weights, which are zeros: the
// ring below copies them, and warps multiply them, while the exchange is under way.
#include "common/kernel/decode.cuh"
#include "common/kernel/ring.cuh"

template <class Base> struct Rounds : Base {
  using Self = typename Base::Self;
  static constexpr Stage result = Stage::gate_up;
  static constexpr bool exchanges = knob::rounds::exchanges, reads = knob::rounds::reads;

  struct Shared : Base::Shared {
    alignas(16) float ones[model::hidden]; // the input of the rows that are read
  };

  // Each round has a layer, and so words of its own.
  static DEVICE void decode(const Context &c, int rounds) {
    float *ones = shared<Self>(c).ones;
    for (int i = threadIdx.x; i < model::hidden; i += block_threads) ones[i] = 1.0f;
    block_barrier();
    for (int round = 0; round < rounds; ++round) {
      const float *before = nullptr;
      if constexpr (exchanges)
        if (round > 0) before = Self::template activations<result>(c, round - 1);
      const auto publish = Self::template publish<result>(c, round);
      const auto word = [&](int i, float more) { publish(i, (before ? before[i] : float(round)) + 1.0f + more); };
      if constexpr (reads) {
        auto job = Self::template job<result>(c, round);
        job.x = ones;
        Self::matvec(c, job, [&](int row, const auto &sums) { word(row, sums[0] + sums[1]); });
      } else {
        const int blocks = int(gridDim.x), end = model::intermediate * (int(blockIdx.x) + 1) / blocks;
        for (int i = model::intermediate * int(blockIdx.x) / blocks + int(threadIdx.x); i < end; i += block_threads)
          word(i, 0.0f);
      }
      if constexpr (exchanges) Self::template exchange<result>(c, round);
      block_barrier(); // all threads have read the words before the next ones overwrite them
    }
  }

  // The loader of bulk_ring, for the rows of this one stage.
  static DEVICE void load(const Context &c, int rounds) {
    if (int(threadIdx.x) >= block_threads + Base::Copies::lanes) return;
    unsigned tile = passed_tiles<Base::slots>, jobs = passed_jobs;
    for (int round = 0; round < rounds; ++round) Base::template feed<result>(c, round, tile, jobs);
    Base::Copies::finish();
  }
};
