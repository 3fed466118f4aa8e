// Operands of tensor cores in shared memory: fp32 vectors as bf16 terms, in the order in which lanes multiply them, and
// rows of bf16.
//
// A product has 8 columns and 16 rows. Rows 0 to 7 are terms for even columns, rows 8 to 15 for odd ones; their row
// 4 i + t is term t of piece or head i, so every fourth row is unused. Rows of bf16 are a multiple of 128 bytes long;
// lanes of an even column load from one half of 128 bytes, lanes of an odd one from the other, so that eight lanes
// together load from all banks.
#pragma once
#include "reduce.cuh"

constexpr int line = 64; // bf16 elements in 128 bytes

// Packet that holds element i: a lane's four words alternate between the halves of a 128-byte line.
DEVICE constexpr int packet_of(int i) { return i / line * 8 + i % 32 / 4; }

// Stores the three terms of elements i to i + 3, 8 bits of the significand each, in packet `packet`; a term is `apart`
// elements after the one before. Lanes of an odd line begin with the second pair, so that two lines together store to
// all banks.
DEVICE void store_terms(const float *x, int i, bf16 *terms, int apart, int packet) {
  bf16 *to = terms + packet * 8 + i % line / 32 * 2; // words of the two halves of a line alternate
  // equivalent: 4 -> 5: an element that nobody reads
  float rest[4] = {x[0], x[1], x[2], x[3]};
  const bool odd = i / line % 2 != 0;
  UNROLL
  for (int t = 0; t < 3; ++t) {
    unsigned pair[2];
    UNROLL
    for (int j = 0; j < 2; ++j) {
      pair[j] = __float_as_uint(rest[2 * j]) >> 16 | (__float_as_uint(rest[2 * j + 1]) & 0xffff0000u);
      rest[2 * j] -= bf16_low(pair[j]);
      rest[2 * j + 1] -= bf16_high(pair[j]);
    }
    store_packet(to + t * apart + (odd ? 4 : 0), Packet<4>{odd ? pair[1] : pair[0]});
    store_packet(to + t * apart + (odd ? 0 : 4), Packet<4>{odd ? pair[0] : pair[1]});
  }
}

// Byte in a line from which a lane loads, where a row is a column of a product.
DEVICE int begin_of_lane(int lane) { return lane / 4 % 2 * 64 + lane % 4 * 16; }

// A lane's packets of a row of `Elements` at `from`: the one at byte `at` of each of `Lines` lines, `Wide` lines apart,
// and, if `Both` is 2, those of the other half of each line. A packet beyond the row is replaced by the first.
template <int Elements, int Lines, int Wide, int Both>
DEVICE void load_lines(const unsigned char *from, int at, bool exact, Packet<16> (&to)[Both * Lines]) {
  const unsigned char *const half[2] = {from + at, from + (at ^ 64)};
  UNROLL
  for (int i = 0; i < Both * Lines; ++i) {
    const int m = i / Lines, further = i % Lines * Wide * 2 * line;
    to[i] = load_packet<16>(exact || (at ^ m * 64) + further < 2 * Elements ? half[m] + further : from);
  }
}

// Sums over both halves of lines, from their two products: row lane / 4 in columns 2 q and 2 q + 1, q = lane % 4.
DEVICE Floats<2> both_halves(const Products<2> &products) {
  return {{products.sums[0][0] + products.sums[1][2], products.sums[0][3] + products.sums[1][1]}};
}
