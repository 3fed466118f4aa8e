// Idea        a warp multiplies its share of the columns of all rows of its block, with the input of these columns in
//             registers; a norm is a factor of the finished sums, and its squares are one sum more
// Hypothesis  a warp waits for an eighth of the input only, straight into registers: nothing is staged before a
//             product, and fp32 vectors are read once a stage, not once a row
// Overrides   whole_inputs, qkv, o_proj, gate_up, down, normalize, after, matvec, emit
// Run         python -m experiments variant=columns
#include "common/kernel/columns.cuh"
#include "common/kernel/decode.cuh"

template <class Base> struct Columns : Base {
  using Self = typename Base::Self;

  struct Shared : Base::Shared {
    float part[Self::tokens][block_warps][max_sums + 1]; // partial sums of a warp, then its sum of squares
    float stream[Self::tokens][model::hidden];           // residual stream, valid in the rows of this block
  };

  static constexpr bool whole_inputs = false;
  static constexpr bool here(Stage s) { return s == Stage::input_norm || s == Stage::post_norm; }

  static DEVICE void qkv(const Context &c, int layer) { multiply_columns<Stage::qkv>(c, layer); }
  static DEVICE void o_proj(const Context &c, int layer) { multiply_columns<Stage::o_proj>(c, layer); }
  static DEVICE void gate_up(const Context &c, int layer) { multiply_columns<Stage::gate_up>(c, layer); }
  static DEVICE void down(const Context &c, int layer) { multiply_columns<Stage::down>(c, layer); }

  // The stages after these norms do them.
  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    if constexpr (!here(S)) Base::template normalize<S>(c, layer);
  }
  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (!here(S)) Base::template after<S>(c, layer);
  }

  template <Stage S> static DEVICE void multiply_columns(const Context &c, int layer) {
    column_products<S>(c, layer, [&] { return emits<S>(c, layer); });
  }

  // `emit` for each token of a step; for a single one its addresses are computed once, before the products.
  template <Stage S> static DEVICE auto emits(const Context &c, int layer) {
    if constexpr (Self::tokens == 1)
      return [emit = Self::template emit<S>(c, layer)](int, int row, const auto &sums) { emit(row, sums); };
    else
      return
          [&c, layer](int n, int row, const auto &sums) { Self::template emit<S>(Self::of(c, n), layer)(row, sums); };
  }

  // The products of stage S. Weights and gains are loaded before the input arrives; then `begin()` gives the function
  // `finish(n, row, sums)` that finishes a row of token n.
  template <Stage S, class Begin> static DEVICE void column_products(const Context &c, int layer, Begin begin) {
    constexpr Stage input = input_of(S);
    // equivalent: layer -> 0: the loader has copied the layer's rows; the job only says how many
    const auto job = Self::template job<S>(c, layer);
    using In = typename InputOf<Self, typename decltype(job)::Row>::Type;
    In x[Self::tokens];
    typename In::Gains gain = {};
    if constexpr (here(input)) gain = x[0].load_gains(gains<input>(c, layer));
    JobCursor<Self, decltype(job)> cursor(c, job);
    float squares[Self::tokens] = {};
    block_barrier(); // the rows of the stage before are finished: parts are read, and no poll delays a row
    UNROLL
    for (int n = 0; n < Self::tokens; ++n) {
      // equivalent: boundary moved: an additional __syncwarp
      if (n > 0) __syncwarp(); // all lanes have read what they exchanged for the token before
      const ResultOf<Self, input> result{Self::of(c, n), layer};
      if constexpr (!here(input)) x[n].take(c, result);
      if constexpr (here(input)) squares[n] = x[n].take_and_scale(c, result, gain);
    }
    const auto finish = begin();
    multiply_job(c, cursor, x, squares, [&](int n, int row, auto &sums) {
      if constexpr (here(input)) {
        UNROLL
        for (float &sum : sums) sum *= norm_factor<Self>(c, n);
      }
      finish(n, row, sums);
    });
    if constexpr (here(input)) // its tap, which no block reads, by the block with the fewest rows
      if (blockIdx.x == gridDim.x - 1) {
        UNROLL
        for (int n = 0; n < Self::tokens; ++n) {
          const auto publish = Self::template publish<input>(Self::of(c, n), layer);
          x[n].each_once([&, scale = norm_factor<Self>(c, n)](int i, float value) { publish(i, value * scale); });
        }
      }
  }

  template <class Job, class Emit> static DEVICE void matvec(const Context &c, const Job &job, Emit emit) {
    JobCursor<Self, Job> cursor(c, job);
    typename InputOf<Self, typename Job::Row>::Type x[1];
    block_barrier(); // parts are read
    x[0].take(c, Vector{job.x});
    const float none[1] = {};
    multiply_job(c, cursor, x, none, [&](int, int row, const auto &sums) { emit(row, sums); });
  }

  // The residual stream stays in the block that finishes its rows, where block barriers order the threads that finish a
  // row of two stages; only the embedding is loaded.
  template <Stage S> static DEVICE auto emit(const Context &c, int layer) {
    // equivalent: && -> ||: a residual that is not kept is read where the same block has stored it
    if constexpr (S != Stage::o_proj && S != Stage::down) {
      return Base::template emit<S>(c, layer);
    } else {
      const auto publish = Self::template publish<S>(c, layer);
      const float *embedded = S == Stage::o_proj && layer == 0 ? residual(c, 0) : nullptr;
      float *stream = shared<Self>(c).stream[c.number];
      return [=](int row, const auto &sums) {
        const float before = embedded != nullptr ? embedded[row] : stream[row];
        publish(row, stream[row] = before + sums[0]);
      };
    }
  }
};
