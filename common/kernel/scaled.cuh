// Rows of 8- or 4-bit weights: int8, int4, and fp8 (e4m3). A weight is scale * (number - zero point); a group of
// neighbouring columns shares both. A row begins with its numbers: bytes in order, or words of eight 4-bit columns, the
// even ones first, so that the two of a pair are 16 bits apart. At the next multiple of 16 bytes the groups follow: a
// scale of 16 bits each or, with zero points, a word of scale (upper half) and zero point. Signed integers without zero
// points are stored with half of their range added.
#pragma once
#include "weights.cuh"

// Group: columns of a group, 0 for a whole row. Real: e4m3, not integers. Zeros: zero points. Half: scales are fp16.
template <int Bits, int Group, bool Real, bool Zeros, bool Half> struct Scaled {
  static constexpr int bits = Bits;
  static constexpr bool real = Real, zeros = Zeros;
  static constexpr int staged(int bytes) { return 2 * bytes; }

  // The scale in the upper half of a word.
  static DEVICE float factor(unsigned word) {
    return Half ? from_half(word >> 16) : __uint_as_float(word & 0xffff0000u);
  }

  // The bits of the number nearest to x, ties to even; x is in the range of the 8 bits, and there is no zero point.
  //
  // Rounding by addition: fp32 numbers from 2^23 on are 1 apart, as integers are, and from 2^14 on 2^-9 apart, as
  // subnormal numbers of e4m3 are; half of the range is added to integers. Normal e4m3 keeps three bits of fraction.
  static DEVICE unsigned bits_of(float x) {
    if constexpr (!Real) return __float_as_uint(x + 8388736.0f) & 0xffu;
    const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    const unsigned normal = (magnitude - (120u << 23) + 0x7ffffu + (magnitude >> 20 & 1)) >> 20;
    const unsigned small = __float_as_uint(__uint_as_float(magnitude) + 16384.0f) & 0xffu;
    return (magnitude < 0x3c800000u ? small : normal & 0x7fu) | (bits >> 24 & 0x80u);
  }
};

// `Bytes` of weights, and the word of their group: the scale in its upper half, the zero point in its lower half.
template <class Format, int Bytes> struct ScaledPacket {
  Packet<Bytes> numbers;
  unsigned scale;

  DEVICE unsigned zero() const { return Format::zeros ? scale & 0xffffu : 1u << (Format::bits - 1); }

  // Number j minus the zero point, exact.
  //
  // An integer n below 2^23 in the lowest bits of fp32 2^23 makes 2^23 + n. e4m3 shifted to fp16 is 2^8 times too
  // small, subnormal numbers included.
  DEVICE float number(int j) const {
    constexpr int each = 32 / Format::bits;
    const int at = Format::bits == 4 ? (j % 8 / 2 + j % 2 * 4) * 4 : j % each * 8;
    const unsigned bits = numbers.word[j / each] >> at & ((1u << Format::bits) - 1);
    if constexpr (Format::real) return from_half((bits & 0x80u) << 8 | (bits & 0x7fu) << 7) * 256;
    constexpr unsigned two_to_23 = 0x4b000000u;
    return __uint_as_float(two_to_23 | bits) - __uint_as_float(two_to_23 | zero());
  }

  // Numbers 2 n and 2 n + 1 minus the zero point, as two bf16; both are exact.
  //
  // An integer n below 2^7 in the lowest bits of bf16 128 makes 128 + n. The eighth bit of a byte chooses what is then
  // subtracted, 128 or 256. e4m3 shifted to bf16 is 2^120 times too small.
  DEVICE unsigned pair(int n) const {
    constexpr unsigned one = 0x3f803f80u;
    const unsigned word = numbers.word[n * 2 * Format::bits / 32];
    if constexpr (Format::real) {
      // equivalent: 0 -> 1: the bits of that byte are masked off
      const unsigned upper = __byte_perm(word, 0, // the upper byte of each half
                                         n % 2 == 0 ? 0x1404u : 0x3424u);
      const unsigned less = (upper >> 4 & 0x07f007f0u) | (upper & 0x80008000u);
      return fma_bf16x2(less, 0x7b807b80u, 0x80008000u); // times 2^120, and -0
    } else if constexpr (Format::bits == 4) {
      const unsigned sum = (word >> n % 4 * 4 & 0x000f000fu) | 0x43004300u;
      return fma_bf16x2(sum, one, 0xc300c300u + zero() * 0x00010001u);
    } else if constexpr (!Format::zeros) {
      const unsigned sum = __byte_perm(word, 0x43434343u, n % 2 == 0 ? 0x4140u : 0x4342u);
      return fma_bf16x2(sum & 0xff7fff7fu, one, (sum & 0x00800080u) ^ 0xc380c380u);
    } else {
      return __float_as_uint(number(2 * n)) >> 16 | (__float_as_uint(number(2 * n + 1)) & 0xffff0000u);
    }
  }
};

template <class Format, int Bytes> DEVICE float number_of(const ScaledPacket<Format, Bytes> &packet, int j) {
  return packet.number(j);
}
template <class Format, int Bytes> DEVICE float scale_of(const ScaledPacket<Format, Bytes> &packet) {
  return Format::factor(packet.scale);
}

// The packet's products are summed, then scaled.
template <class Format, int Bytes>
DEVICE float add_products(const ScaledPacket<Format, Bytes> &weights, const float *x, float sum) {
  float products = 0;
  UNROLL
  for (int j = 0; j < 8 * Bytes / Format::bits; ++j) products = fmaf(weights.number(j), x[j], products);
  return fmaf(products, Format::factor(weights.scale), sum);
}

template <class Format, int K, int Group> struct ScaledRow {
  static constexpr bool scaled = true;
  static constexpr int columns = K, group = Group == 0 ? K : Group;
  static constexpr int scales = (K * Format::bits + 127) / 128 * 16; // bytes before them
  static constexpr int bytes = scales + (K / group * (Format::zeros ? 4 : 2) + 15) / 16 * 16;
  static_assert(K % group == 0 && group % 8 == 0, "a packet has one scale");

  // The widest load of at most `most` bytes whose weights divide `part` columns.
  static constexpr int widest(int most, int part = group) {
    return part * Format::bits % (8 * most) == 0 ? most : widest(most / 2, part);
  }
  template <int Most> static constexpr int packet = widest(Most);
  template <int Most> static constexpr int width = 8 * packet<Most> / Format::bits;

  // Byte offset of the word with the scale of column i, and that word as ScaledPacket::scale: without zero points a
  // word has the scales of two groups.
  static DEVICE int scale_at(int i) { return scales + (Format::zeros ? i / group * 4 : i / group / 2 * 4); }
  static DEVICE unsigned scale_in(unsigned word, int i) {
    return Format::zeros ? word : i / group % 2 == 0 ? word << 16 : word & 0xffff0000u;
  }

  // A packet and its scale in shared memory.
  template <int Most> struct Staged {
    static constexpr int packed = packet<Most>, bytes = Format::staged(packed);
    void *address;
    DEVICE unsigned *scale() const {
      return reinterpret_cast<unsigned *>(static_cast<unsigned char *>(address) + packed);
    }
    DEVICE ScaledPacket<Format, packed> load(int i) const {
      return {load_packet<packed>(address), scale_in(load_packet<4>(scale()).word[0], i)};
    }
    DEVICE void store(const ScaledPacket<Format, packed> &from) const {
      store_packet(address, from.numbers);
      const unsigned both = from.scale | from.scale >> 16; // in both halves: scale_in takes either
      store_packet(scale(), Packet<4>{Format::zeros ? from.scale : both});
    }
  };
};

template <int Bits, int Group, bool Real, bool Zeros, bool Half, int K>
struct SharedRow<Scaled<Bits, Group, Real, Zeros, Half>, K>
    : ScaledRow<Scaled<Bits, Group, Real, Zeros, Half>, K, Group> {
  using Format = Scaled<Bits, Group, Real, Zeros, Half>;
  using Base = ScaledRow<Format, K, Group>;
  const unsigned char *address;
  DEVICE explicit SharedRow(const void *address) : address(static_cast<const unsigned char *>(address)) {}

  DEVICE unsigned scale(int i) const { return Base::scale_in(load_packet<4>(address + Base::scale_at(i)).word[0], i); }
  // Scale of column i as a float.
  DEVICE float factor(int i) const { return Format::factor(scale(i)); }
  template <int Most, L1 = L1::allocate> DEVICE auto load(int i) const {
    constexpr int packed = Base::template packet<Most>;
    return ScaledPacket<Format, packed>{load_packet<packed>(address + i * Bits / 8), scale(i)};
  }
  DEVICE auto packet_at(int p) const { return load<16>(p * Base::template width<16>); }

  // Numbers minus zero points, exact in bf16.
  template <int Lines, int Wide, int Both>
  DEVICE void load_pairs(int at, bool exact, Packet<16> (&to)[Both * Lines]) const {
    UNROLL
    for (int n = 0; n < Both * Lines; ++n) {
      const int column = (at ^ n / Lines * 64) / 2 + n % Lines * Wide * line, i = exact || column < K ? column : 0;
      const auto from = ScaledPacket<Format, Bits>{load_packet<Bits>(address + i * Bits / 8), Zeros ? scale(i) : 0u};
      UNROLL
      for (int j = 0; j < 4; ++j) to[n].word[j] = from.pair(j);
    }
  }
};

template <int Bits, int Group, bool Real, bool Zeros, bool Half, int K>
struct Row<Scaled<Bits, Group, Real, Zeros, Half>, K> : ScaledRow<Scaled<Bits, Group, Real, Zeros, Half>, K, Group> {
  using Format = Scaled<Bits, Group, Real, Zeros, Half>;
  using Base = ScaledRow<Format, K, Group>;
  using Shared = SharedRow<Format, K>;
  const void *address;
  int first; // column from which columns are counted
  DEVICE Row(const Weight *address, int first = 0) : address(address), first(first) {}

  DEVICE const Weight *byte(size_t at) const {
    return reinterpret_cast<const Weight *>(static_cast<const unsigned char *>(address) + at);
  }
  DEVICE const Weight *numbers(int i) const { return byte(i * Bits / 8); }

  DEVICE Row below(int r) const { return {byte(size_t(r) * Base::bytes), first}; }
  DEVICE Row from(int i) const { return {byte(0), first + i}; }
  template <int Most, L1 Keep> DEVICE auto load(int i) const {
    constexpr int packed = Base::template packet<Most>;
    const int at = first + i;
    const Weight *scales = byte(Base::scales);
    return ScaledPacket<Format, packed>{load_weights<packed, Keep>(numbers(at)),
                                        Zeros ? load_weights<4>(byte(Base::scale_at(at))).word[0]
                                              : __float_as_uint(load_weight(scales + at / Base::group))};
  }
  template <class Staged> DEVICE void copy(Staged to, int i) const {
    copy_async<Staged::packed>(to.address, numbers(first + i));
    copy_async<4>(to.scale(), byte(Base::scale_at(first + i)));
  }
};
