// fp32 vectors as bf16 terms in shared memory, in the order in which lanes multiply them by tensor cores, and rows of
// bf16 as the other factor.
//
// A product has 8 columns, and 16 rows. Rows 0 to 7 belong to even columns and rows 8 to 15 to odd ones; row 4 i + t of
// either is term t of something, so every fourth is not used. Rows in shared memory are a multiple of 128 bytes long;
// lanes of an even column load from one half of 128 bytes and lanes of an odd one from the other half, so eight lanes
// together load from all banks.
#pragma once
#include "reduce.cuh"

constexpr int line = 64; // elements of bf16 in 128 bytes: two halves, and eight packets of terms

// Packet that holds element i: a lane's four words alternate between the halves of a 128-byte line.
DEVICE constexpr int packet_of(int i) { return i / line * 8 + i % 32 / 4; }

// Stores the terms of elements i to i + 3 in packet `packet`: the upper 8 bits of an element, the upper 8 of the rest,
// and the last 8, which are all 24. A term is `apart` elements after the one before. Lanes of an odd line begin with
// the second pair, so that those of two lines together store to all banks.
DEVICE void store_terms(const float *x, int i, bf16 *terms, int apart, int packet) {
  bf16 *to = terms + packet * 8 + i % line / 32 * 2; // words of the two halves take turns
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

// Byte of a row's first line at which a lane begins to load that row as a column of a product.
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

// From a pair of products of both halves: the sums of row lane / 4 in columns 2 q and 2 q + 1, where q is lane % 4.
DEVICE Floats<2> both_halves(const Products<2> &products) {
  return {{products.sums[0][0] + products.sums[1][2], products.sums[0][3] + products.sums[1][1]}};
}
