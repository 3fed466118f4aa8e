// A warp's share of the columns of a matrix by tensor cores: the input as three bf16 terms, which together are exact.
#pragma once
#include "columns.cuh"
#include "terms.cuh"

// As ColumnInput: the same columns of a warp for every row. Tiles have `Often` rows at most, and `Together` of them are
// multiplied at once where each is one product. The columns of a product are rows of weights, or pieces of rows; its
// rows are the terms that belong to a piece.
template <int K, int Often, int Together> struct TensorInput {
  static constexpr int rows = Often > 4 ? 8 : Often > 2 ? 4 : 2, pieces = 8 / rows; // per product
  static constexpr int wide = pieces == 4 ? 2 : 1; // lines of a row that a product has at once, a half of each
  // equivalent: 1 -> 0: a line beyond the last has no columns
  static constexpr int lines = (K + wide * line * block_warps - 1) / (wide * line * block_warps); // per lane
  static constexpr int columns = lines * wide * line;                                             // per warp
  static constexpr int both = pieces == 1 ? 2 : 1;           // products: each half of a line is in one
  static constexpr int mine = (columns / 32 + 3) / 4 * 4;    // columns that a lane takes
  static constexpr int tiles = Often <= rows ? Together : 1; // at once at most
  static constexpr bool exact = columns * block_warps == K && mine * 32 == columns; // no lane is left over
  // Lanes exchange terms through shared memory, half of them at a time where they are more than 9 KB.
  static constexpr int turns = 6 * columns * block_warps > 9 << 10 ? 2 : 1, staged = columns / turns;
  static constexpr int bytes = 3 * staged * int(sizeof(bf16)) * block_warps;

  const int thread = thread_anew(); // this stage's own
  float x[mine] = {};
  // Terms of a lane's columns, in both halves of a line: one of the three, or none.
  Packet<16> term[2 * lines] = {};

  DEVICE int lane() const { return thread & 31; }
  DEVICE int warp() const { return thread >> 5; }
  // Place of the lane's i-th column among those of the warp, and of all: neighbouring lanes have neighbouring
  // packets of four, so a poll of the warp asks for each line once.
  DEVICE int own(int i) const { return in_runs<4, 128>(i) + 4 * lane(); }
  DEVICE int column(int i) const { return warp() * columns + own(i); }
  DEVICE bool exists(int i) const { return exact || (own(i) < columns && column(i) < K); }

  // place: [block_warps][3][staged], which the warp's lanes no longer read.
  template <class From> DEVICE void take(bf16 *place, const From &from) {
    fill(from);
    split(place);
  }

  template <class From> DEVICE float take_and_scale(bf16 *place, const From &from, const Weight *gains) {
    Packet<8> gain[mine / 4] = {};
    UNROLL
    for (int i = 0; i < mine; i += 4)
      // equivalent: branch forced: gains beyond the last meet elements that are zero
      if (exists(i)) gain[i / 4] = load_weights<8>(gains + column(i));
    fill(from);
    float squares = 0;
    UNROLL
    for (int i = 0; i < mine; ++i) {
      const unsigned pair = gain[i / 4].word[i % 4 / 2];
      squares = fmaf(x[i], x[i], squares);
      x[i] *= i % 2 == 0 ? bf16_low(pair) : bf16_high(pair);
    }
    split(place);
    return warp_sum(squares);
  }

  // The loads of a lane's columns are issued together if possible.
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

  // A lane loads its columns, and receives one term of the columns that it multiplies by.
  DEVICE void split(bf16 *place) {
    const int t = lane() / 4 % 4;
    bf16 *terms = place + warp() * 3 * staged;
    UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      if (turn > 0) __syncwarp(); // all lanes have read
      UNROLL
      for (int i = 0; i < mine; i += 4) {
        // equivalent: initial value changed: only its multiple of eight and its half of a line count
        const int at = own(i), packet = packet_of(at);
        if (mine * 32 != columns && at >= columns) continue;
        if (turns == 1 || packet % 2 == turn) store_terms(x + i, at, terms, staged, packet / turns);
      }
      __syncwarp(); // all lanes have written
      if (t == 3 || (pieces < 4 && lane() >= 16)) continue;
      UNROLL
      for (int i = 0; i < 2 * lines; ++i) {
        const int packet = (i / 2 * wide + lane() / 16) * 8 + lane() % 4 * 2 + i % 2;
        if (turns == 1 || i % 2 == turn) term[i] = load_packet<16>(terms + t * staged + packet / turns * 8);
      }
    }
  }

  template <class Out> DEVICE void each_once(Out out) const {
    UNROLL
    for (int i = 0; i < mine; ++i)
      if (exists(i / 4 * 4)) out(column(i), x[i]);
  }

  // The warp's parts of `count` products into `part`; `row(t, i)` is the row of the i-th in tile t. There are `Tiles`;
  // all but the last have `Of` products; a tile of more rows than a product has is divided into products. All loads are
  // under way before a sum needs one of them. The parts of the inputs are `apart` sums apart.
  template <int Of, int Tiles, class In, int Inputs, class At>
  static DEVICE void multiply(const In (&x)[Inputs], int count, At row, float *part, int apart) {
    UNROLL
    for (int n = 0; n < Inputs; ++n) x[n].template multiply<Of, Tiles>(count, row, part + n * apart);
  }
  template <int Of, int Tiles, class At> DEVICE void multiply(int count, At row, float *part) const {
    constexpr bool divided = Often > rows;
    constexpr int at_once = divided ? Together : Tiles, each = divided ? rows : Of; // products, and what one has
    const int g = lane() / 4; // a column of the product, of four lanes
    const int at = 2 * (warp() * columns + (pieces == 4 ? g / 2 % 2 * line : 0)) + begin_of_lane(lane());
    ROLLED
    // equivalent: boundary moved: an additional turn has no rows, and keeps no product
    for (int begin = 0; begin < (divided ? count : 1); begin += at_once * each) {
      const auto products_of = [=](int t) { return divided || t + 1 == Tiles ? count - begin - t * each : Of; };
      const auto row_of = [=](int t, int n) { // row in column n of the product; there may be fewer rows
        const int first = divided ? begin + t * each : 0, i = n / pieces < products_of(t) ? first + n / pieces : 0;
        return row(divided ? 0 : t, i);
      };
      Packet<16> weights[at_once][both * lines];
      Products<both> products[at_once];
      UNROLL
      for (int t = 0; t < at_once; ++t) row_of(t, g).template load_pairs<lines, wide, both>(at, exact, weights[t]);
      UNROLL
      for (int t = 0; t < at_once; ++t) products[t] = product(weights[t], [=](int n) { return row_of(t, n); });
      UNROLL
      // equivalent: boundary moved: no product of an additional tile is kept
      for (int t = 0; t < at_once; ++t) add_up(products[t], products_of(t), part + begin + t * each);
    }
  }

  // The product of the terms and a lane's weights. Where rows have scales, one is a factor of the sums of a half of a
  // line, or of all where a row has one; `row_of(n)` is the row of column n.
  template <class Of> DEVICE Products<both> product(const Packet<16> (&weights)[both * lines], Of row_of) const {
    using Row = decltype(row_of(0));
    if constexpr (!Row::scaled) {
      return multiply_add<lines, both>(term, weights);
    } else {
      static_assert(Row::group == K || Row::group % 32 == 0, "tensor cores need groups of a multiple of 32 columns");
      constexpr bool whole = Row::group % line == 0 && columns % Row::group == 0 && wide == 1;     // in a warp
      constexpr int step = Row::group == K ? lines : whole ? min_of(lines, Row::group / line) : 1; // lines of a scale
      Products<both> all = {};
      UNROLL
      for (int i = 0; i < lines; i += step) {
        Packet<16> some[both * step];
        UNROLL
        for (int j = 0; j < both * step; ++j) some[j] = weights[j / step * lines + i + j % step];
        const auto products = multiply_add<step, both>(term + 2 * i, some);
        UNROLL
        for (int j = 0; j < 2 * both; ++j) { // a sum of an even column in either half of a line, and of an odd one
          const int m = j / 2, n = 2 * (lane() % 4) + j % 2, s = m == 0 ? j % 2 * 3 : 2 - j % 2;
          const int first = warp() * columns + (pieces == 4 ? n / 2 % 2 * line : 0) + i * wide * line;
          const int column = first + (Row::group % line == 0 ? 0 : 32 * ((n % 2) ^ m));
          const float factor = row_of(n).factor(Row::group < K && column < K ? column : 0);
          all.sums[m][s] = fmaf(products.sums[m][s], factor, all.sums[m][s]);
        }
      }
      return all;
    }
  }

  // Adds what the lanes of a row have: its terms, in four groups of lanes, and its pieces. A lane has one row.
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
