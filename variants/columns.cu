// Idea        a warp multiplies its share of the columns of all rows of its block, with the input of these columns in
//             registers; a norm is a factor of the finished sums, and its squares are one sum more
// Hypothesis  a warp waits for an eighth of the input only, straight into registers: nothing is staged before a
//             product, no block barrier comes before it, and fp32 vectors are read once a stage, not once a row
// Overrides   enter, whole_inputs, qkv, o_proj, gate_up, down, normalize, after, matvec, emit
// Run         python -m experiments variant=columns
#include "common/kernel/columns.cuh"
#include "common/kernel/decode.cuh"

template <class Base> struct Columns : Base {
  using Self = typename Base::Self;

  struct Shared : Base::Shared {
    float part[2][block_warps][most_sums + 1]; // by warp, its squares last; a second place for the next sums
    float stream[model::hidden];               // the residual stream in the rows of this block
    unsigned batch[block_threads];             // the next one of each thread: places are taken in turn
  };

  static constexpr bool whole_inputs = false;
  static constexpr bool here(Stage s) { return s == Stage::input_norm || s == Stage::post_norm; }

  static DEVICE void enter(const Context &c) {
    if (port::thread() < block_threads) shared<Self>(c).batch[port::thread()] = 0;
    Base::enter(c);
  }

  static DEVICE void qkv(const Context &c, int layer) { multiply_columns<Stage::qkv>(c, layer); }
  static DEVICE void o_proj(const Context &c, int layer) { multiply_columns<Stage::o_proj>(c, layer); }
  static DEVICE void gate_up(const Context &c, int layer) { multiply_columns<Stage::gate_up>(c, layer); }
  static DEVICE void down(const Context &c, int layer) { multiply_columns<Stage::down>(c, layer); }

  // These norms are done in the stages that follow them.
  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    if constexpr (!here(S)) Base::template normalize<S>(c, layer);
  }
  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (!here(S)) Base::template after<S>(c, layer);
  }

  // What a block knows of a job before its input arrives: divisions, and loads from shared memory.
  template <class Job> struct Known : Self::template Rows<Job> {
    Place<Self::slots> place; // of the next tile
    unsigned batch;           // the next one
    DEVICE Known(const Context &c, const Job &job)
        : Self::template Rows<Job>(job), place(shared<Self>(c).tile[port::thread()]),
          batch(shared<Self>(c).batch[port::thread()]) {}
  };

  template <Stage S> static DEVICE void multiply_columns(const Context &c, int layer) {
    constexpr Stage input = input_of(S);
    auto job = Self::template job<S>(c, layer);
    const Known<decltype(job)> known(c, job);
    typename InputOf<Self, typename decltype(job)::Row>::Type x(c);
    const ResultOf<Self, input> result{c, layer};
    float squares = 0;
    if constexpr (!here(input)) x.take(result);
    if constexpr (here(input)) squares = x.take_and_scale(result, gains<input>(c, layer));
    const auto emit = Self::template emit<S>(c, layer);
    const unsigned batch = products(c, known, x, squares, [&](int row, auto &sums, unsigned batch) {
      if constexpr (here(input)) {
        UNROLL
        for (float &sum : sums) sum *= factor(c, batch);
      }
      emit(row, sums);
    });
    if constexpr (here(input)) // its tap, which no block reads, by the block with the fewest rows
      if (port::block() == port::blocks() - 1) {
        const auto publish = Self::template publish<input>(c, layer);
        x.each_once([&, scale = factor(c, batch)](int i, float value) { publish(i, value * scale); });
      }
  }

  // The caller has a vector, and finishes the sums of a row.
  template <class Job, class Emit> static DEVICE void matvec(const Context &c, const Job &job, Emit emit) {
    const Known<Job> known(c, job);
    typename InputOf<Self, typename Job::Row>::Type x(c);
    x.take(Vector{job.x});
    products(c, known, x, 0, [&](int row, const auto &sums, unsigned) { emit(row, sums); });
  }

  // All products of a job, tile by tile as they come out of the ring. As many tiles as there is room for are finished
  // together, a row in one thread: the same one for a row of o_proj and of down. Returns the number of the last batch.
  template <class Job, class In, class Finish>
  static DEVICE unsigned products(const Context &c, Known<Job> known, const In &x, float squares, Finish finish) {
    constexpr int matrices = Job::matrices, per_tile = Known<Job>::per_tile,
                  rows = most_sums / matrices / per_tile * per_tile;
    auto &s = shared<Self>(c);
    if (!Self::ahead && port::thread() == 0 && known.count > 0) port::mbarrier_arrive(&s.begun);
    for (int begin = 0;; begin += rows, ++known.batch) {
      const int end = fewer(known.count, begin + rows);
      float *part = s.part[known.batch % 2][warp()];
      ROLLED
      for (int left = end - begin; left > 0; left -= In::tiles * per_tile, part += In::tiles * per_tile * matrices) {
        if (left > (In::tiles - 1) * per_tile)
          multiply_tiles<Self, Job, In::tiles>(c, x, known.place, left, part);
        else
          multiply_tiles<Self, Job, 1>(c, x, known.place, left, part);
      }
      finish_batch<Job>(c, known.batch, squares, known.first + begin, end - begin, finish);
      if (end == known.count) break;
    }
    s.tile[port::thread()] = known.place.tile();
    s.batch[port::thread()] = known.batch + 1;
    return known.batch;
  }

  // Adds the parts of the warps. The threads that do not, and those that are done, go on: the next batch has another
  // place, and after it all threads meet again.
  template <class Job, class Finish> static DEVICE void finish_batch(const Context &c, unsigned batch, float squares,
                                                                     int first, int count, Finish finish) {
    auto &part = shared<Self>(c).part[batch % 2];
    if (lane() == 0) part[warp()][most_sums] = squares;
    port::block_barrier();
    UNROLL
    for (int first_row = 0; first_row < most_sums; first_row += block_threads) { // one turn in a block of usual size
      const int row = first_row + port::thread();
      if (row >= count) break;
      float sums[Job::matrices] = {};
      UNROLL
      for (int w = 0; w < block_warps; ++w) {
        UNROLL
        for (int m = 0; m < Job::matrices; ++m) sums[m] += part[w][row * Job::matrices + m];
      }
      finish(first + row, sums, batch);
    }
  }

  // The factor of the norm whose squares are in the parts of a batch.
  static DEVICE float factor(const Context &c, unsigned batch) {
    float sum = 0;
    UNROLL
    for (int w = 0; w < block_warps; ++w) sum += shared<Self>(c).part[batch % 2][w][most_sums];
    return port::rsqrt(sum / model::hidden + model::rms_eps);
  }

  // The residual stream stays where its rows are finished; only the embedding is read.
  template <Stage S> static DEVICE auto emit(const Context &c, int layer) {
    if constexpr (S != Stage::o_proj && S != Stage::down) {
      return Base::template emit<S>(c, layer);
    } else {
      const auto publish = Self::template publish<S>(c, layer);
      const float *embedded = S == Stage::o_proj && layer == 0 ? residual(c, 0) : nullptr;
      float *stream = shared<Self>(c).stream;
      return [=](int row, const auto &sums) {
        const float before = embedded != nullptr ? port::load_activation(embedded + row) : stream[row];
        publish(row, stream[row] = before + sums[0]);
      };
    }
  }
};
