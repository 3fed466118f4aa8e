// A warp's share of the columns of a matrix: the input of these columns in registers, used for every row.
#pragma once
#include "barrier.cuh"
#include "matvec.cuh"
#include "norm.cuh"
#include "ring.cuh"

// Sums of `N` values, a power of two, over groups of `Lanes` neighbouring lanes: at each shuffle a lane gives half of
// its values away and adds what it gets to the other half. Lane i of a group gets the sum of value i * N / Lanes.
// Called by all lanes of a warp.
template <int Lanes, int N> DEVICE float transposing_sum(const float (&value)[N]) {
  static_assert((N & (N - 1)) == 0 && N <= Lanes, "as many values as a power of two, and a lane for each");
  if constexpr (N == 1) {
    return warp_sum<Lanes>(value[0]);
  } else {
    const bool upper = (lane() & (Lanes / 2)) != 0;
    float half[N / 2];
    UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const float kept = upper ? value[i + N / 2] : value[i], given = upper ? value[i] : value[i + N / 2];
      half[i] = kept + __shfl_xor_sync(all_lanes, given, Lanes / 2);
    }
    return transposing_sum<Lanes / 2>(half);
  }
}

constexpr int next_power_of_two(int n) { return n <= 1 ? 1 : 2 * next_power_of_two((n + 1) / 2); }

// Columns of a row in the lanes of a block: warp by warp, `each` packets of `width` to a lane. Neighbouring lanes have
// neighbouring packets, so a load or a poll of a warp asks for each line once. Where a warp's share takes only `group`
// lanes, the other lanes repeat it, and the warp multiplies `rows` = 32 / group rows at once.
template <class Row> struct ColumnLanes {
  static constexpr int width = Row::template width<16>, packets = Row::columns / width;
  static constexpr int group_for(int each) {
    return next_power_of_two((packets + each * block_warps - 1) / (each * block_warps));
  }
  // Packets of a row that a warp loads, idle lanes included. `best` minimizes them, then the registers.
  // equivalent: arithmetic replaced: how many packets a lane has decides the time
  static constexpr int loaded(int each) { return each * group_for(each); }
  static constexpr int best(int each = 1, int found = 0) {
    return each > 4 && found > 0
               ? found
               // equivalent: 32 -> 31 or operands swapped: how many packets a lane has decides the time
               : best(each + 1, group_for(each) <= 32 && (found == 0 || loaded(each) < loaded(found)) ? each : found);
  }
  static constexpr int each = best(), group = group_for(each), rows = 32 / group;
  // equivalent: block_warps -> block_threads or * -> /: where no lane is left over, comparing is superfluous
  static constexpr bool exact = block_warps * group * each == packets; // no lane is left over

  // The p-th packet of this lane. Those from `packets` on do not exist.
  static DEVICE int packet(int p) { return (warp() * each + p) * group + lane() % group; }
};

// Sources of an input: the result of stage S as it arrives, or a vector in memory.
template <class Self, Stage S> struct ResultOf {
  const Context c;
  const int layer;
  template <int N, int Run = N, int Apart = N> DEVICE Floats<N> at(int i) const {
    if constexpr (S == Stage::input_norm || S == Stage::post_norm) // the stream that it normalizes
      return Self::template stream<S, N, Run, Apart>(c, layer)(i);
    else
      return Self::template receive<S, N, Run, Apart>(c, layer, i);
  }
};
struct Vector {
  const float *x;
  template <int N, int Run = N, int Apart = N> DEVICE Floats<N> at(int i) const {
    return load_floats<N, Run, Apart>(x + i);
  }
};

template <class Self, class Job> struct ColumnTiles;

// The input of this lane's columns, 0 where it has none.
template <class Row> struct ColumnInput : ColumnLanes<Row> {
  using Lanes = ColumnLanes<Row>;
  template <class Self, class Job> using Tiles = ColumnTiles<Self, Job>;
  static constexpr int width = Lanes::width;
  static constexpr int loads = width / 8; // for the gains of a packet
  float x[width * Lanes::each] = {};

  // `from` is a source as above; the loads of a lane are issued together if possible.
  template <class From> DEVICE void take(const Context &, const From &from) {
    constexpr int together = Lanes::exact ? Lanes::each : 1, apart = Lanes::group * width;
    UNROLL
    for (int p = 0; p < Lanes::each; p += together) {
      if (Lanes::packet(p) >= Lanes::packets) continue;
      const auto got = from.template at<width * together, width, apart>(width * Lanes::packet(p));
      UNROLL
      for (int j = 0; j < width * together; ++j) x[width * p + j] = got.value[j];
    }
  }

  struct Gains {
    Packet<16> packet[Lanes::each * loads];
  };
  // Gains of the lane's columns.
  static DEVICE Gains load_gains(const Weight *gains) {
    Gains gain = {};
    UNROLL
    for (int p = 0; p < Lanes::each * loads; ++p)
      // equivalent: / -> * or branch forced or boundary moved: gains beyond the last meet elements that are zero
      if (Lanes::packet(p / loads) < Lanes::packets)
        gain.packet[p] = load_weights<16>(gains + width * Lanes::packet(p / loads) + 8 * (p % loads));
    return gain;
  }

  // As `take`, then multiplies by the gains; returns the warp's part of the sum of squares, without gains.
  template <class From> DEVICE float take_and_scale(const Context &c, const From &from, const Gains &gain) {
    take(c, from);
    return warp_sum<Lanes::group>(times_gains(x, gain.packet));
  }

  // Calls out(i, value) for each element, in one of the block's threads.
  template <class Out> DEVICE void each_once(Out out) const {
    // equivalent: boundary moved: the next lane has the columns of lane 0, and stores the same values
    if (lane() >= Lanes::group) return;
    UNROLL
    for (int j = 0; j < width * Lanes::each; ++j)
      if (Lanes::packet(j / width) < Lanes::packets) out(width * Lanes::packet(j / width) + j % width, x[j]);
  }

  // Stores the warp's partial sums of `count` rows in `part`, one row `row(i)` after another; those of the next input
  // are `apart` floats on. Most tiles have `Often` rows.
  template <int Often, int Inputs, class At>
  static DEVICE void multiply(const ColumnInput (&x)[Inputs], int count, At row, float *part, int apart) {
    // Rows per lane at most, limited by registers for their sums.
    // equivalent: 6 -> 5 or branch forced: how many rows are multiplied at once decides the time
    constexpr int of_lane = min_of(Lanes::group, Inputs < 6 ? 6 / Inputs : 1);
    constexpr int most = Lanes::rows * of_lane, turns = (Often + most - 1) / most;
    constexpr int at_once = (Often + turns - 1) / turns, sums = (at_once + Lanes::rows - 1) / Lanes::rows; // per lane
    // equivalent: branch forced or equality inverted or boundary moved or bound off by one: a full tile takes both ways
    if (sums > 1 && count == Often) { // so the compiler knows every row
      ROLLED
      for (int i = 0; i < Often; i += sums * Lanes::rows) some<sums>(x, i, Often, row, part, apart);
    } else {
      ROLLED
      for (int i = 0; i < count; i += Lanes::rows) some<1>(x, i, count, row, part, apart);
    }
  }

  // Up to `Sums` rows of each lane. A packet is loaded once for all inputs.
  template <int Sums, int Inputs, class At>
  static DEVICE void some(const ColumnInput (&x)[Inputs], int begin, int end, At row, float *part, int apart) {
    constexpr int together = next_power_of_two(Sums * Inputs) <= Lanes::group ? Inputs : 1; // inputs exchanged at once
    constexpr int padded = next_power_of_two(Sums * together), share = Lanes::group / padded; // lanes of the same sum
    float sum[Inputs / together][padded] = {};
    UNROLL
    for (int s = 0; s < Sums; ++s) {
      const int i = begin + s * Lanes::rows + lane() / Lanes::group;
      // equivalent: boundary moved or bound off by one: a product beyond the last is not kept
      const auto weights = row(i < end ? i : end - 1);
      UNROLL
      for (int p = 0; p < Lanes::each; ++p) {
        const int packet = Lanes::packet(p), at = Lanes::exact || packet < Lanes::packets ? packet : 0;
        const auto loaded = weights.packet_at(at);
        UNROLL
        for (int n = 0; n < Inputs; ++n) {
          float &own = sum[n / together][n % together * Sums + s];
          own = add_products(loaded, x[n].x + width * p, own);
        }
      }
    }
    UNROLL
    for (int first = 0; first < Inputs; first += together) {
      const float mine = transposing_sum<Lanes::group>(sum[first / together]);
      const int own = lane() % Lanes::group / share, s = together == 1 ? own : own % Sums;
      const int n = together == 1 ? first : own / Sums, i = begin + s * Lanes::rows + lane() / Lanes::group;
      if (lane() % share == 0 && own < Sums * together && i < end) part[n * apart + i] = mine;
    }
  }
};

// The input type of the stack `Self`: its `Input` if a variant defines one (tensor_rows), otherwise ColumnInput.
template <class> using Void = void;
template <class Self, class Row, class = void> struct InputOf {
  using Type = ColumnInput<Row>;
};
template <class Self, class Row> struct InputOf<Self, Row, Void<typename Self::template Input<Row>>> {
  using Type = typename Self::template Input<Row>;
};

// Slot and phase of a tile in a ring, advanced without a division, which would delay each wait.
template <unsigned Slots> struct RingPosition {
  unsigned slot, phase;
  DEVICE explicit RingPosition(unsigned tile) : slot(tile % Slots), phase(tile / Slots) {}
  DEVICE unsigned tile() const { return phase * Slots + slot; }
  DEVICE RingPosition next() const {
    RingPosition next = *this;
    if (++next.slot == Slots) next.slot = 0, ++next.phase;
    return next;
  }
};

// Multiplies the tiles of a job by a ColumnInput, one by one, out of the ring.
template <class Self, class Job> struct ColumnTiles {
  using Mine = typename Self::template Rows<Job>;
  static constexpr int span = Mine::per_tile * Job::matrices; // sums of a tile; a batch has whole ones
  RingPosition<Self::slots> place;                            // the next tile's

  DEVICE ColumnTiles(const Context &, RingPosition<Self::slots> place, int) : place(place) {}

  // Stores the warp's parts of the next `count` sums, as ColumnInput::multiply, and gives the slots back. Called by all
  // lanes of a warp.
  template <class In, int Inputs>
  DEVICE void multiply(const Context &c, const In (&x)[Inputs], int count, float *part, int apart) {
    auto &s = shared<Self>(c);
    ROLLED
    for (int done = 0; done < count; done += span, place = place.next()) {
      wait_for_phase(c, &s.full[place.slot], place.phase);
      const auto row = [&](int i) { return Mine::at(s.slot[place.slot], i % Job::matrices, i / Job::matrices); };
      In::template multiply<span>(x, min_of(span, count - done), row, part + done, apart);
      __syncwarp(); // all lanes have read
      if (lane() == 0) mbarrier_arrive(&s.empty[place.slot]);
    }
  }
};

// A job's rows and place in the ring, found before its input arrives; tensor_rows also loads its first weights.
template <class Self, class Job> struct JobCursor : Self::template Rows<Job> {
  using Input = typename InputOf<Self, typename Job::Row>::Type;
  typename Input::template Tiles<Self, Job> tiles;
  DEVICE JobCursor(const Context &c, const Job &job)
      : Self::template Rows<Job>(job), tiles(c, begin(c, this->count), this->count * Job::matrices) {}

  static DEVICE RingPosition<Self::slots> begin(const Context &c, int count) {
    auto &s = shared<Self>(c);
    if (!Self::ahead && threadIdx.x == 0 && count > 0) mbarrier_arrive(&s.begun);
    return RingPosition<Self::slots>(s.tile[int(threadIdx.x)]);
  }
};

// Adds the partial sums of the warps, a row in one thread. No barrier follows: the caller has one before new parts.
template <class Self, class Job, int Inputs, class Finish>
DEVICE void finish_batch(const Context &c, const float (&squares)[Inputs], int first, int count, Finish finish) {
  auto &part = shared<Self>(c).part;
  UNROLL
  for (int n = 0; n < Inputs; ++n)
    if (lane() == 0) part[n][warp()][max_sums] = squares[n];
  block_barrier();
  // equivalent: / -> *: it is an upper bound
  constexpr int rows = max_sums / Job::matrices; // one input at a time
  UNROLL
  // equivalent: boundary moved: an additional turn is beyond the last row of each input, and finishes nothing
  for (int turn = 0; turn < Inputs * rows; turn += block_threads) { // one turn in a block of usual size
    const int n = Inputs == 1 ? 0 : (turn + int(threadIdx.x)) / rows, row = turn + threadIdx.x - n * rows;
    if (n >= Inputs) break;
    if (row >= count) continue;
    float sums[Job::matrices] = {};
    UNROLL
    for (int w = 0; w < block_warps; ++w) {
      UNROLL
      for (int m = 0; m < Job::matrices; ++m) sums[m] += part[n][w][row * Job::matrices + m];
    }
    finish(n, first + row, sums);
  }
}

// Norm factor of token n, from the squares beside the last batch's parts.
template <class Self> DEVICE float norm_factor(const Context &c, int n) {
  float sum = 0;
  UNROLL
  for (int w = 0; w < block_warps; ++w) sum += shared<Self>(c).part[n][w][max_sums];
  return rsqrtf(sum / model::hidden + model::rms_eps);
}

// All products of a job. As many tiles as `part` has room for are finished together: the thread that finishes a row
// depends on the matrix. Called when no thread still reads parts.
template <class Self, class Job, class In, int Inputs, class Finish>
DEVICE void multiply_job(const Context &c, JobCursor<Self, Job> &cursor, const In (&x)[Inputs],
                         const float (&squares)[Inputs], Finish finish) {
  constexpr int matrices = Job::matrices, span = decltype(cursor.tiles)::span, rows = max_sums / span * span / matrices,
                apart = block_warps * (max_sums + 1);
  auto &s = shared<Self>(c);
  for (int begin = 0;; begin += rows) {
    const int end = min_of(cursor.count, begin + rows);
    cursor.tiles.multiply(c, x, (end - begin) * matrices, s.part[0][warp()], apart);
    finish_batch<Self, Job>(c, squares, cursor.first + begin, end - begin, finish);
    if (end == cursor.count) break;
    block_barrier(); // all threads have read the parts
  }
  s.tile[int(threadIdx.x)] = cursor.tiles.place.tile();
}
