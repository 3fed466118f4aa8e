// Idea        o_proj split along K by head: the block that attended to a head multiplies its columns of a share of the
//             rows, and adds the products to 64-bit words that also count the additions
// Hypothesis  the output of attention stays in its block: four exchanges a layer, not five (28 of 140 at 28 layers).
//             With 132 blocks 8 share a query head, each with 128 rows: 16 adds a word, 16,384 a layer, 128 a block. A
//             block polls 8 KB of sums and 4 KB of residual in place of 8 KB of attention and 4 KB of o_proj. The 8
//             repeat the head's attention: at position p a layer's blocks read 64 (p + 1) KB of the cache, not 8, of
//             which memory sends 4 either way. A block for both heads of a KV head would halve the adds, yet attend
//             twice as long
// Overrides   attention_blocks, attention, o_proj, publish, receive, emit
// Run         python -m experiments variant=counted_sums
#include "common/kernel/columns.cuh"
#include "common/kernel/decode.cuh"
#include "common/kernel/sums.cuh"

template <class Base> struct CountedSums : Base {
  using Self = typename Base::Self;

  struct Shared : Base::Shared {
    alignas(16) float attended[model::query]; // for this block's heads
    float sum[model::hidden];                 // o_proj's, all rows
  };

  // The rows of o_proj are divided into parts, with a block for each part and head. With fewer blocks than heads there
  // is one part, and a block takes several heads. Blocks beyond the last part have no head.
  // equivalent: boundary moved or branch forced: how many blocks share a head decides the time; the others have no head
  static DEVICE int parts() { return int(gridDim.x) < model::heads ? 1 : int(gridDim.x) / model::heads; }
  static DEVICE int part() { return int(blockIdx.x) / model::heads; }
  static DEVICE int first_head() { return part() < parts() ? int(blockIdx.x) % model::heads : model::heads; }

  static DEVICE bool stores_heads() { return part() == 0; }

  static DEVICE int attention_blocks(const Context &) { return model::heads * parts(); }

  // The barrier after each head is also the one before its elements are multiplied, and before post_norm overwrites
  // what qkv has read. A block without a head needs it, too.
  static DEVICE void attention(const Context &c, int layer) {
    for (int head = first_head(); head < model::heads; head += int(gridDim.x)) Self::attend_head(c, layer, head);
    if (first_head() == model::heads) block_barrier();
  }

  static DEVICE void o_proj(const Context &c, int layer) {
    for (int head = first_head(); head < model::heads; head += int(gridDim.x)) add_head(c, layer, head);
  }

  // A warp multiplies the columns of one head, divided among lanes by HeadLanes: half as many rows at once as a group
  // has lanes, so that two lanes end with the sum of each row.
  static DEVICE void add_head(const Context &c, int layer, int head) {
    const auto job = Self::template job<Stage::o_proj>(c, layer);
    using Row = typename decltype(job)::Row;
    constexpr int bytes = Row::widest(Self::load_bytes, model::head_dim);
    using Split = HeadLanes<Row::template width<bytes>>;
    constexpr int group = Split::group, rows = group > 1 ? group / 2 : 1, share = group / rows;
    const int begin = model::hidden * part() / parts(), end = model::hidden * (part() + 1) / parts();
    const auto columns = job.row(0, 0).from(head * model::head_dim);
    const float *x = shared<Self>(c).attended + head * model::head_dim;
    ROLLED
    for (int start = begin + warp() * rows * Split::positions; start < end;
         start += block_warps * rows * Split::positions) {
      const int first = start + lane() / group * rows;
      float sum[rows] = {};
      UNROLL
      for (int p = 0; p < Split::per_lane; ++p) {
        const int packet = lane() % group + p * group;
        if (packet >= Split::packets) continue;
        UNROLL
        for (int r = 0; r < rows; ++r) { // rows beyond the last repeat it; their sums are dropped below
          // equivalent: 1 -> 0 or initial value changed: sums of rows beyond the last are dropped
          const int row = first + r < end ? first + r : end - 1, at = packet * Split::width;
          sum[r] = add_products(columns.below(row).template load<bytes, Self::load_l1>(at),
                                load_floats<Split::width>(x + at).value, sum[r]);
        }
      }
      const float mine = transposing_sum<group>(sum);
      const int row = first + lane() % group / share;
      // equivalent: 0 -> 1: lanes that share a sum have the same one; where a lane has it alone, nothing is added
      if (lane() % share != 0 || row >= end) continue;
      add_relaxed(sums(c, c.turn, layer) + row, addend(mine));
      if (head == 0) clear_sum(c, layer, row);
    }
  }

  // No block reads the taps of attention and of o_proj.
  template <Stage S> static DEVICE auto publish(const Context &c, int layer, int first = 0) {
    float *out = tap<S>(c, layer) + first;
    if constexpr (S == Stage::attention) {
      float *attended = shared<Self>(c).attended + first;
      return [=](int i, float value) {
        attended[i] = value;
        if (part() == 0) out[i] = value;
      };
    } else if constexpr (S == Stage::o_proj) {
      return [=](int i, float value) { out[i] = value; };
    } else {
      return Base::template publish<S>(c, layer, first);
    }
  }

  // Every block adds the residual. It never waits for that: complete sums depend on it.
  template <Stage S, int N, int Run = N, int Apart = N>
  static DEVICE Floats<N> receive(const Context &c, int layer, int i) {
    if constexpr (S != Stage::o_proj) {
      return Base::template receive<S, N, Run, Apart>(c, layer, i);
    } else {
      auto x = Self::template stream<Stage::input_norm, N, Run, Apart>(c, layer)(i);
      const auto sum = arrive_sums<N, Run, Apart>(c, layer, i);
      Self::template received<S>(c, layer);
      UNROLL
      for (int j = 0; j < N; ++j) {
        shared<Self>(c).sum[i + in_runs<Run, Apart>(j)] = sum.value[j];
        x.value[j] += sum.value[j];
      }
      return x;
    }
  }

  // The thread that finishes a row of down first finishes that row of o_proj, from the sums that its block received.
  template <Stage S> static DEVICE auto emit(const Context &c, int layer) {
    const auto finish = Base::template emit<S>(c, layer);
    if constexpr (S == Stage::down) {
      const auto finish_o_proj = Self::template emit<Stage::o_proj>(c, layer);
      const float *seen = shared<Self>(c).sum;
      return [=](int row, const auto &sums) {
        const float sum[1] = {seen[row]};
        finish_o_proj(row, sum);
        finish(row, sums);
      };
    } else {
      return finish;
    }
  }
};
