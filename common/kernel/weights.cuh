// Rows of matrices: the interface of all formats, and bf16; scaled.cuh has those of fewer bits. No other text knows the
// bytes of a row, what a packet holds, or how it is multiplied. A row is one run of bytes, scales included, so that it
// can be copied and prefetched by its address. Gains of norms and the embedding are always bf16.
// common/model/layout.py defines `LayerFormat` (the layers' matrices) and `HeadFormat` in front of this text.
#pragma once
#include "reduce.cuh"
#include "terms.cuh"

// K weights in `Format`: in global memory; and in shared memory, or where the same launch writes.
template <class Format, int K> struct Row;
template <class Format, int K> struct SharedRow;

struct Bf16 {
  static constexpr int bits = 16;
  static constexpr int staged(int bytes) { return bytes; } // shared memory for a packet of `bytes`
};

// sum += weights . x for the columns of a packet, from left to right; `x` is in registers.
template <int Bytes> DEVICE float add_products(const Packet<Bytes> &weights, const float *x, float sum) {
  UNROLL
  for (int j = 0; j < Bytes / 2; j += 2) {
    sum = fmaf(bf16_low(weights.word[j / 2]), x[j], sum);
    sum = fmaf(bf16_high(weights.word[j / 2]), x[j + 1], sum);
  }
  return sum;
}

// Number j of a packet, not scaled, and its scale.
template <int Bytes> DEVICE float number_of(const Packet<Bytes> &packet, int j) {
  return j % 2 == 0 ? bf16_low(packet.word[j / 2]) : bf16_high(packet.word[j / 2]);
}
template <int Bytes> DEVICE float scale_of(const Packet<Bytes> &) { return 1; }

// A packet in shared memory.
template <int Bytes> struct SharedPacket {
  static constexpr int bytes = Bf16::staged(Bytes);
  void *address;
  DEVICE Packet<Bytes> load(int) const { return load_packet<Bytes>(address); }
  DEVICE void store(const Packet<Bytes> &packet) const { store_packet(address, packet); }
};

template <int K> struct SharedRow<Bf16, K> {
  static constexpr bool scaled = false;
  static constexpr int columns = K;
  template <int Most> static constexpr int width =
      Most / 2; // weights of a packet that is loaded by at most so many bytes
  const void *address;

  // The packet from column i on.
  template <int Most, L1 = L1::allocate> DEVICE Packet<Most> load(int i) const {
    return load_packet<Most>(static_cast<const unsigned char *>(address) + i * sizeof(bf16));
  }
  // Scale of column i.
  DEVICE float factor(int) const { return 1; }
  // Packet p of the row, where a packet is 16 bytes.
  DEVICE Packet<16> packet_at(int p) const {
    return load_packet<16>(static_cast<const unsigned char *>(address) + 16 * p);
  }
  // A lane's packets of the row in bf16, for tensor cores, as load_lines loads them from byte `at` of such a row on.
  template <int Lines, int Wide, int Both>
  DEVICE void load_pairs(int at, bool exact, Packet<16> (&to)[Both * Lines]) const {
    load_lines<K, Lines, Wide, Both>(static_cast<const unsigned char *>(address), at, exact, to);
  }
};

template <int K> struct Row<Bf16, K> {
  using Shared = SharedRow<Bf16, K>;
  static constexpr int columns = K, bytes = K * int(sizeof(bf16));
  // Bytes of the widest load up to `most` whose weights divide a number of columns evenly: in bf16 any.
  static constexpr int widest(int most, int) { return most; }
  template <int Most> static constexpr int width = Most / 2;
  template <int Most> using Staged = SharedPacket<Most>;
  const void *address;

  // The row of the same matrix that is `r` rows below.
  DEVICE Row below(int r) const { return {static_cast<const Weight *>(address) + size_t(r) * K}; }
  // The same row, with its columns counted from column i on.
  DEVICE Row from(int i) const { return {static_cast<const Weight *>(address) + i}; }
  // The packet from column i on.
  template <int Most, L1 Keep> DEVICE Packet<Most> load(int i) const {
    return load_weights<Most, Keep>(static_cast<const Weight *>(address) + i);
  }
  // The same, copied asynchronously.
  template <int Bytes> DEVICE void copy(SharedPacket<Bytes> to, int i) const {
    copy_async<Bytes>(to.address, static_cast<const Weight *>(address) + i);
  }
};
