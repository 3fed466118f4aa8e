// A warp's share of the columns of a matrix by tensor cores: the input as three bf16 terms, which together are exact.
#pragma once
#include "columns.cuh"
#include "terms.cuh"

template <class Self, class Job, class In> struct TensorTiles;

// As ColumnInput, for tiles of at most `Often` rows and `Together` products at once. A product's columns are rows of
// weights, or pieces of rows where a tile has fewer than eight; its rows are the terms for a piece.
template <int K, int Often, int Together> struct TensorInput {
  template <class Self, class Job> using Tiles = TensorTiles<Self, Job, TensorInput>;
  static constexpr int rows = Often > 4 ? 8 : Often > 2 ? 4 : 2, pieces = 8 / rows; // per product
  static constexpr int wide = pieces == 4 ? 2 : 1; // lines that the pieces of a row span
  // equivalent: 1 -> 0: a line beyond the last has no columns
  static constexpr int lines = (K + wide * line * block_warps - 1) / (wide * line * block_warps); // per lane
  static constexpr int columns = lines * wide * line;                                             // per warp
  // equivalent: 1 -> 2: sums that nobody reads
  static constexpr int both = pieces == 1 ? 2 : 1;        // products of a row, one for each half of its lines
  static constexpr int mine = (columns / 32 + 3) / 4 * 4; // columns that a lane takes
  static constexpr int together = Together;               // products at once
  static constexpr bool exact = columns * block_warps == K && mine * 32 == columns; // no lane is left over
  // Lanes exchange terms through shared memory, `staged` columns at a time, in two places by turns.
  static constexpr int staged = min_of(columns, 128), places = columns > staged ? 2 : 1;
  static constexpr int bytes = places * 3 * staged * int(sizeof(bf16)) * block_warps;

  const int thread = thread_anew();
  float x[mine] = {};
  // The term, one of three or none, that is this lane's row of the product; for both halves of each line.
  Packet<16> term[2 * lines] = {};

  DEVICE int lane() const { return thread & 31; }
  DEVICE int warp() const { return thread >> 5; }
  // The lane's i-th column, counted in the warp and in the row. Neighbouring lanes have neighbouring packets of four,
  // so a poll of the warp asks for each line once.
  DEVICE int own(int i) const { return in_runs<4, 128>(i) + 4 * lane(); }
  DEVICE int column(int i) const { return warp() * columns + own(i); }
  DEVICE bool exists(int i) const { return exact || (own(i) < columns && column(i) < K); }

  // place: [block_warps][places][3][staged] in shared memory. The warp's lanes no longer read its part.
  template <class From> DEVICE void take(bf16 *place, const From &from) {
    fill(from);
    split(place);
  }

  struct Gains {
    Packet<8> packet[mine / 4];
  };
  DEVICE Gains load_gains(const Weight *gains) const {
    Gains gain = {};
    UNROLL
    for (int i = 0; i < mine; i += 4)
      // equivalent: branch forced: gains beyond the last meet elements that are zero
      if (exists(i)) gain.packet[i / 4] = load_weights<8>(gains + column(i));
    return gain;
  }

  template <class From> DEVICE float take_and_scale(bf16 *place, const From &from, const Gains &gain) {
    fill(from);
    const float squares = times_gains(x, gain.packet);
    split(place);
    return warp_sum(squares);
  }

  // Loads the lane's columns, together if possible.
  template <class From> DEVICE void fill(const From &from) {
    constexpr int together = exact ? mine : 4;
    UNROLL
    for (int i = 0; i < mine; i += together) {
      if (!exists(i)) continue;
      const auto got = from.template at<together, 4, 128>(column(i));
      UNROLL
      for (int j = 0; j < together; ++j) x[i + j] = got.value[j];
    }
  }

  // Splits the lane's columns into terms, and receives one term of the columns that it multiplies by.
  DEVICE void split(bf16 *place) {
    // equivalent: lane() -> threadIdx.x or 0 -> 1: the same modulo 16; only the multiple of four of `at` counts
    const int t = lane() / 4 % 4, at = own(0);
    UNROLL
    for (int turn = 0; turn < mine / 4; ++turn) { // equivalent: 4 -> 3: a further turn stores what no lane reads
      bf16 *terms = place + (warp() * places + turn % places) * 3 * staged;
      // equivalent: 32 -> 33 or 32 -> 31 or 4 -> 3 or * -> + or * -> /: places of two lines have room for all lanes
      if (mine * 32 == columns || own(4 * turn) < columns) store_terms(x + 4 * turn, at, terms, staged, packet_of(at));
      __syncwarp(); // all lanes have written, and have read what the place had two turns before
      if (t == 3 || (pieces < 4 && lane() >= 16)) continue; // equivalent: >= -> > or 16 -> 17: no row sums lane 16
      UNROLL
      for (int i = 0; i < 2 * lines; ++i) { // equivalent: 2 -> 3: terms beyond the last are in no product
        const int first = i / 2 * wide;     // line of the warp; each turn has two
        if (first / 2 != turn) continue;
        term[i] = load_packet<16>(terms + t * staged + ((first % 2 + lane() / 16) * 8 + lane() % 4 * 2 + i % 2) * 8);
      }
    }
  }

  template <class Out> DEVICE void each_once(Out out) const {
    UNROLL
    for (int i = 0; i < mine; ++i)
      if (exists(i / 4 * 4)) out(column(i), x[i]);
  }
};

// Multiplies the tiles of a job by a TensorInput, some rows at once. Rows are loaded ahead: the first ones before their
// input arrives, later ones while lanes add up the products before. Rows of a tile's matrices alternate.
template <class Self, class Job, class In> struct TensorTiles {
  using Mine = typename Self::template Rows<Job>;
  using Row = typename Job::Row::Shared;
  static constexpr int lines = In::lines, wide = In::wide, both = In::both, pieces = In::pieces;
  static constexpr int each = Mine::per_tile * Job::matrices; // rows of a tile
  static constexpr bool divided = each > In::rows;            // a tile into products; otherwise a product is a tile
  static constexpr int of_product = divided ? In::rows : each;
  static constexpr int products = min_of(In::together, divided ? (each + In::rows - 1) / In::rows : Self::slots);
  static constexpr int rows = products * of_product, tiles = divided ? 1 : products; // at once
  static constexpr int span = divided ? each : rows; // rows of these tiles; a batch of sums has whole spans
  // Lines that share a scale: all if a row has one scale, one if a line or a warp has parts of groups.
  static constexpr int step() {
    if constexpr (!Row::scaled) {
      return lines;
    } else {
      constexpr bool whole = Row::group % line == 0 && In::columns % Row::group == 0 && wide == 1; // in a warp
      return Row::group == Row::columns ? lines : whole ? min_of(lines, Row::group / line) : 1;
    }
  }
  static constexpr int scales = Row::scaled ? lines / step() : 1;

  // A lane's weights of a product, and the scales of its sums.
  struct Held {
    Packet<16> weights[both * lines];
    float factor[scales][2 * both];
  };

  const int thread = thread_anew();
  RingPosition<Self::slots> place; // first tile that is not given back
  int left, first = 0;             // rows of the job from that tile on; the next one to load
  int held = 0;                    // rows in at_hand
  Held at_hand[products] = {};

  DEVICE TensorTiles(const Context &c, RingPosition<Self::slots> place, int count) : place(place), left(count) {
    load(c);
    pass(c);
  }

  DEVICE int lane() const { return thread & 31; }
  DEVICE int warp() const { return thread >> 5; }

  // Loads the next rows, if any. A product with fewer rows repeats some, whose sums are not kept.
  DEVICE void load(const Context &c) {
    held = min_of(rows, min_of(span, left) - first);
    if (held == 0) return;
    auto &s = shared<Self>(c);
    static_assert(products <= 2, "add a place for each further tile");
    const RingPosition<Self::slots> tile[2] = {place, place.next()};
    if (!divided || first == 0) {
      Mbarrier *full[tiles];
      unsigned phase[tiles];
      UNROLL
      for (int t = 0; t < tiles; ++t) { // if there are fewer: the first one again
        const auto &from = t * each < left ? tile[t] : tile[0];
        full[t] = &s.full[from.slot], phase[t] = from.phase;
      }
      wait_for_phases(c, full, phase);
    }
    const int g = lane() / 4; // a column of the product, of four lanes
    const int at = 2 * (warp() * In::columns + (pieces == 4 ? g / 2 % 2 * line : 0)) + begin_of_lane(lane());
    UNROLL
    for (int p = 0; p < products; ++p) {
      unsigned char *slot = s.slot[divided || p * of_product >= held ? place.slot : tile[p].slot];
      const auto row_of = [&](int n) { // row in column n of the product
        const int i = (first + p * of_product + n / pieces) % each;
        return Mine::at(slot, i % Job::matrices, i / Job::matrices);
      };
      Held &to = at_hand[p];
      row_of(g).template load_pairs<lines, wide, both>(at, In::exact, to.weights);
      if constexpr (Row::scaled) {
        static_assert(Row::group == Row::columns || Row::group % 32 == 0,
                      "tensor cores need groups of a multiple of 32 columns");
        UNROLL
        // For each product the scales of the lane's two columns, the even one and the odd one.
        for (int j = 0; j < scales * 2 * both; ++j) {
          const int f = j / (2 * both), m = j / 2 % both, n = 2 * (lane() % 4) + j % 2;
          const int begin = warp() * In::columns + (pieces == 4 ? n / 2 % 2 * line : 0) + f * step() * wide * line;
          const int column = begin + (Row::group % line == 0 ? 0 : 32 * ((n % 2) ^ m));
          to.factor[f][2 * m + j % 2] =
              row_of(n).factor(Row::group < Row::columns && column < Row::columns ? column : 0);
        }
      }
    }
  }

  // Gives back tiles whose last rows are loaded.
  DEVICE void pass(const Context &c) {
    if (held == 0) return;
    __syncwarp(); // all lanes have read
    first += rows;
    if (divided && first < min_of(span, left)) return;
    UNROLL
    for (int t = 0; t < tiles; ++t) {
      if (t * each >= left) break;
      // equivalent: 0 -> 1: any lane may arrive
      if (lane() == 0) mbarrier_arrive(&shared<Self>(c).empty[place.slot]);
      place = place.next();
    }
    left -= min_of(span, left);
    first = 0;
  }

  // As in ColumnTiles, but tiles are given back before their rows are multiplied.
  template <class X, int Inputs>
  DEVICE void multiply(const Context &c, const X (&x)[Inputs], int count, float *part, int apart) {
    ROLLED
    for (int now; count > 0; count -= now, part += now) {
      now = held;
      UNROLL
      for (int n = 0; n < Inputs; ++n) {
        Products<both> made[products];
        UNROLL
        for (int p = 0; p < products; ++p) made[p] = product(x[n].term, at_hand[p]);
        if (n + 1 == Inputs) load(c);
        UNROLL
        for (int p = 0; p < products; ++p)
          add_up(made[p], min_of(of_product, now - p * of_product), part + n * apart + p * of_product);
      }
      pass(c);
    }
  }

  // The product of the terms and the weights, scaled.
  static DEVICE Products<both> product(const Packet<16> (&term)[2 * lines], const Held &row) {
    if constexpr (!Row::scaled) {
      return multiply_add<lines, both>(term, row.weights);
    } else {
      Products<both> all = {};
      UNROLL
      for (int i = 0; i < lines; i += step()) {
        Packet<16> some[both * step()];
        UNROLL
        for (int j = 0; j < both * step(); ++j) some[j] = row.weights[j / step() * lines + i + j % step()];
        const auto products = multiply_add<step(), both>(term + 2 * i, some);
        UNROLL
        for (int j = 0; j < 2 * both; ++j) {
          const int m = j / 2, s = m == 0 ? j % 2 * 3 : 2 - j % 2;
          all.sums[m][s] = fmaf(products.sums[m][s], row.factor[i / step()][j], all.sums[m][s]);
        }
      }
      return all;
    }
  }

  // Adds a row's sums over its terms, which are in different lanes, and over its pieces; stores each row in one lane.
  DEVICE void add_up(const Products<both> &products, int count, float *part) const {
    const int g = lane() / 4, q = lane() % 4;
    float mine;
    if constexpr (pieces == 1) {
      const auto sums = both_halves(products);
      const bool even = g % 2 == 0;
      mine =
          (even ? sums.value[0] : sums.value[1]) + __shfl_xor_sync(all_lanes, even ? sums.value[1] : sums.value[0], 4);
    } else {
      mine = products.sums[0][0] + products.sums[0][3];
      mine += __shfl_xor_sync(all_lanes, mine, 4);
    }
    mine += __shfl_xor_sync(all_lanes, mine, 8);
    if (pieces == 4) mine += __shfl_xor_sync(all_lanes, mine, 16 + 1);
    const bool finished = pieces == 1 ? g < 2 : g == 0 && (pieces == 2 || q % 2 == 0);
    const int own = !finished ? max_sums : pieces == 1 ? 2 * q + g : pieces == 2 ? q : q / 2;
    if (own < count) part[own] = mine; // equivalent: boundary moved: a value beyond the last sum is overwritten
  }
};
