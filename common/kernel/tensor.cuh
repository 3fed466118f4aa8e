// A warp's share of the columns of a matrix by tensor cores: the input as three bf16 terms, which together are exact.
//
// Rows in shared memory are a multiple of 128 bytes long, so eight of them would come from the same banks. Here the
// eight rows of a matrix that ldmatrix loads are eight pieces of one row of weights, 16 bytes each; then the columns of
// the other factor are the same eight pieces of the input, and what is wanted is the diagonal of the product.
#pragma once
#include "columns.cuh"
#include "tensor_port.cuh"

// Sums over the eight lanes that have the diagonal, of `N` values at once: the lane of piece p gets that of value
// p * N / 8. `Level` is 4, 2, 1: bits of p.
template <int Level, int N> DEVICE float diagonal_sum(const float (&value)[N]) {
  static_assert((N & (N - 1)) == 0 && N <= 2 * Level, "as many values as a power of two, and a lane for each");
  constexpr int left = N > 1 ? N / 2 : 1, across = 4 * Level + Level / 2; // the lane of piece p is 4 * p + p / 2
  const bool upper = N > 1 && (lane() / 4 & Level) != 0;
  float half[left];
  UNROLL
  for (int i = 0; i < left; ++i) {
    const float kept = upper ? value[N - left + i] : value[i], given = upper ? value[i] : value[N - left + i];
    half[i] = kept + port::shuffle_xor(given, across);
  }
  if constexpr (Level == 1)
    return half[0];
  else
    return diagonal_sum<Level / 2>(half);
}

// As ColumnInput: the same columns of a warp for every row, two rows at once.
template <int K> struct TensorInput {
  static constexpr int packets = K / 8;                                              // of 8 columns
  static constexpr int runs = (packets + 16 * block_warps - 1) / (16 * block_warps); // pairs of packets of four lanes
  static constexpr int each = 2 * runs;                                              // packets of four lanes
  static constexpr int apart = (each & -each) < 8 ? each & -each : 8;

  float x[each][2] = {};        // two columns of a packet, by turn
  Packet<8> term[3][runs] = {}; // their terms, each the rest after those before; of two turns

  // Four lanes have `each` neighbouring packets, a piece in each turn. Pieces of the same turn are 16 * each bytes
  // apart, which some of them would share banks: they take their packets in another order.
  static DEVICE int order(int piece) { return piece * apart / 8; }
  static DEVICE int packet(int turn, int piece) { return (warp() * 8 + piece) * each + (turn ^ order(piece)); }
  static DEVICE int column(int turn) { return 8 * packet(turn, lane() / 4) + 2 * (lane() % 4); }
  static DEVICE bool exists(int turn) { return packet(turn, lane() / 4) < packets; }

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
        term[t][turn / 2].word[turn % 2] = pair;
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

  template <int Often, class Row> DEVICE void multiply(int begin, int end, Row row, float *part) const {
    constexpr int pairs = Often < 3 ? 1 : Often < 8 ? (Often + 1) / 2 : 4; // of rows at once
    if constexpr (pairs > 1) {
      ROLLED
      for (; begin + 2 * pairs - 1 <= end; begin += 2 * pairs) some<pairs>(begin, end, row, part);
    }
    ROLLED
    for (; begin < end; begin += 2) some<1>(begin, end, row, part);
  }

  template <int Pairs, class Row> DEVICE void some(int begin, int end, Row row, float *part) const {
    constexpr int sums = 2 * Pairs, padded = next_power_of_two(sums), share = 8 / padded; // lanes that get the same sum
    float diagonal[padded] = {};
    UNROLL
    for (int p = 0; p < Pairs; ++p) {
      const int i = begin + 2 * p + lane() / 8 % 2;
      const unsigned char *from = row(p + 1 < Pairs || i < end ? i : end - 1); // the last row may have no neighbour
      Sums sum = {};
      UNROLL
      for (int r = 0; r < runs; ++r) {
        const int at = packet(2 * r + lane() / 16, lane() % 8);
        const auto weights = port::load_matrices(from + 16 * (at < packets ? at : 0));
        UNROLL
        for (int t = 2; t >= 0; --t) sum = port::multiply_add(weights, term[t][r], sum); // the smallest first
      }
      const bool odd = lane() / 4 % 2 != 0;
      diagonal[2 * p] = odd ? sum.value[1] : sum.value[0];
      diagonal[2 * p + 1] = odd ? sum.value[3] : sum.value[2];
    }
    const float mine = diagonal_sum<4>(diagonal);
    const int piece = lane() / 4, s = piece / share;
    if (lane() % 4 == piece / 2 && piece % share == 0 && s < sums && begin + s < end) part[begin + s] = mine;
  }
};
