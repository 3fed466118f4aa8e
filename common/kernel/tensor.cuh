// A warp's share of the columns of a matrix by tensor cores: the input as three bf16 terms, which together are exact.
//
// Rows in shared memory are a multiple of 128 bytes long, so eight of them would come from the same banks. Here the
// eight rows of a matrix that ldmatrix loads are eight pieces of one row of weights, 16 bytes each; then the columns of
// the other factor are the same eight pieces of the input, and what is wanted is the diagonal of the product.
#pragma once
#include "columns.cuh"
#include "tensor_port.cuh"

// As ColumnInput: the same columns of a warp for every row, two rows at once.
template <int K> struct TensorInput {
  static constexpr int packets = K / 8;                                              // of 8 columns
  static constexpr int runs = (packets + 16 * block_warps - 1) / (16 * block_warps); // pairs of packets of four lanes
  static constexpr int each = 2 * runs;                                              // packets of four lanes
  static constexpr int apart = (each & -each) < 8 ? each & -each : 8;
  static constexpr bool exact = block_warps * 8 * each == packets; // no lane is left over

  const int thread = port::thread_anew(); // of this stage
  float x[each][2] = {};                  // two columns of a packet, by turn
  Packet<8> term[runs][3] = {};           // their terms, each the rest after those before; of two turns

  DEVICE int lane() const { return thread & 31; }
  DEVICE int warp() const { return thread >> 5; }

  // Four lanes have `each` neighbouring packets, a piece in each turn. Pieces of the same turn are 16 * each bytes
  // apart, which some of them would share banks: they take their packets in another order.
  static DEVICE int order(int piece) { return piece * apart / 8; }
  DEVICE int packet(int turn, int piece) const { return (warp() * 8 + piece) * each + (turn ^ order(piece)); }
  DEVICE int column(int turn) const { return 8 * packet(turn, lane() / 4) + 2 * (lane() % 4); }
  DEVICE bool exists(int turn) const { return packet(turn, lane() / 4) < packets; }

  template <class From> DEVICE void take(const From &from) {
    fill(from);
    split();
  }

  template <class From> DEVICE float take_and_scale(const From &from, const bf16 *gains) {
    Packet<4> gain[each] = {};
    UNROLL
    for (int turn = 0; turn < each; ++turn)
      if (exists(turn)) gain[turn] = port::load_weights<4>(gains + column(turn));
    fill(from);
    float squares = 0;
    UNROLL
    for (int turn = 0; turn < each; ++turn) {
      squares = fmaf(x[turn][0], x[turn][0], fmaf(x[turn][1], x[turn][1], squares));
      x[turn][0] *= bf16_low(gain[turn].word[0]);
      x[turn][1] *= bf16_high(gain[turn].word[0]);
    }
    split();
    return warp_sum(squares);
  }

  // Four lanes ask for the same elements, all of theirs together if they can; each keeps its own.
  template <class From> DEVICE void fill(const From &from) {
    constexpr int together = packets % each == 0 ? each : 1;
    const int first = (warp() * 8 + lane() / 4) * each;
    float kept[each][2] = {};
    UNROLL
    for (int p = 0; p < each; p += together) {
      if (first + p >= packets) continue;
      const auto got = from.template at<8 * together>(8 * (first + p));
      UNROLL
      for (int j = 0; j < 8 * together; ++j)
        if (j % 8 / 2 == lane() % 4) kept[p + j / 8][j % 2] = got.value[j];
    }
    UNROLL
    for (int at = 0; at < each * each; ++at) {
      const int turn = at / each, p = at % each;
      if ((turn ^ p) >= apart || (turn ^ p) != order(lane() / 4)) continue;
      x[turn][0] = kept[p][0];
      x[turn][1] = kept[p][1];
    }
  }

  // Three terms of 8 bits each are all of the 24 bits of an element.
  DEVICE void split() {
    UNROLL
    for (int turn = 0; turn < each; ++turn) {
      float low = x[turn][0], high = x[turn][1];
      UNROLL
      for (int t = 0; t < 3; ++t) {
        const unsigned pair = to_bf16(low) | unsigned(to_bf16(high)) << 16;
        term[turn / 2][t].word[turn % 2] = pair;
        low -= bf16_low(pair);
        high -= bf16_high(pair);
      }
    }
  }

  template <class Out> DEVICE void each_once(Out out) const {
    UNROLL
    for (int at = 0; at < 2 * each; ++at)
      if (exists(at / 2)) out(column(at / 2) + at % 2, x[at / 2][at % 2]);
  }

  // The warp's parts of `count` products into `part`; `row(i)` is the row of the i-th. Most calls have `Often`.
  template <int Often, class Row> DEVICE void multiply(int count, Row row, float *part) const {
    constexpr int turns = (Often + 7) / 8, pairs = (Often + 2 * turns - 1) / (2 * turns); // of rows, in one turn
    if (count == Often) { // so the compiler knows every row
      ROLLED
      for (int i = 0; i < Often; i += 2 * pairs) some<pairs>(i, Often, row, part);
    } else {
      ROLLED
      for (int i = 0; i < count; i += 2) some<1>(i, count, row, part);
    }
  }

  // Up to four pairs of rows. Each has its pieces in another order, so that its diagonal lies in other lanes: row g of
  // a matrix is piece g ^ 2 * p of a row of weights, and a lane has column `g ^ 2 * p` of one pair only.
  template <int Pairs, class Row> DEVICE void some(int begin, int end, Row row, float *part) const {
    const int g = lane() / 4, pair = g / 2 ^ lane() % 4;
    const bool odd = g % 2 != 0;
    float upper = 0, lower = 0; // of the two rows of this lane's pair
    UNROLL
    for (int p = 0; p < Pairs; ++p) {
      const int i = begin + 2 * p + lane() / 8 % 2;
      const unsigned char *from = row(i < end ? i : end - 1); // the last row may have no neighbour
      Sums sum = {};
      UNROLL
      for (int r = 0; r < runs; ++r) {
        const int at = packet(2 * r + lane() / 16, lane() % 8 ^ 2 * p);
        sum = port::multiply_add<3>(from + 16 * (exact || at < packets ? at : 0), term[r], sum); // the least term first
      }
      upper = p == pair ? odd ? sum.value[1] : sum.value[0] : upper;
      lower = p == pair ? odd ? sum.value[3] : sum.value[2] : lower;
    }
    float mine = (odd ? lower : upper) + port::shuffle_xor(odd ? upper : lower, 4);
    mine += port::shuffle_xor(mine, 8 + 1);
    mine += port::shuffle_xor(mine, 16 + 2);
    const int i = begin + 2 * pair + g; // the first eight lanes have all sums
    if (lane() < 8 && pair < Pairs && i < end) part[i] = mine;
  }
};
