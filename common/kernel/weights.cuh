// The format of matrices, bf16. No other text knows the bytes of a row, what a packet holds, or how it is multiplied:
// it asks for rows, packets and products. A row is one run of bytes, whatever it holds beside its weights, so that it
// can be copied and prefetched by its address. Gains of norms, the embedding and the KV cache are bf16 in any format.
#pragma once
#include "reduce.cuh"
#include "terms.cuh"

// Weights of a packet that is loaded by `Bytes`.
template <int Bytes> constexpr int packet_weights = Bytes / 2;

// sum += weights . x for the columns of a packet, from left to right; `x` is in registers.
template <int Bytes> DEVICE float add_products(const Packet<Bytes> &weights, const float *x, float sum) {
  UNROLL
  for (int j = 0; j < packet_weights<Bytes>; j += 2) {
    sum = fmaf(bf16_low(weights.word[j / 2]), x[j], sum);
    sum = fmaf(bf16_high(weights.word[j / 2]), x[j + 1], sum);
  }
  return sum;
}

// The same; `x` is in memory.
template <int Bytes> DEVICE float dot_packet(const Packet<Bytes> &weights, const float *x, float sum) {
  return add_products(weights, load_floats<packet_weights<Bytes>>(x).value, sum);
}

// A row of K weights in shared memory: of a matrix, or one packet.
template <int K> struct SharedRow {
  static constexpr int bytes = K * int(sizeof(bf16));
  void *address;

  // The packet from column i on.
  template <int Bytes, L1 = L1::allocate> DEVICE Packet<Bytes> load(int i) const {
    return port::load<Data::weights, Bytes>(static_cast<const unsigned char *>(address) + i * sizeof(bf16));
  }
  // The packet with number `p` of those of 16 bytes.
  DEVICE Packet<16> packet(int p) const {
    return port::load<Data::weights, 16>(static_cast<const unsigned char *>(address) + 16 * p);
  }
  // A lane's packets of the row in bf16, for tensor cores, as load_lines loads them from byte `at` of such a row on.
  template <int Lines, int Wide, int Both>
  DEVICE void load_pairs(int at, bool exact, Packet<16> (&to)[Both * Lines]) const {
    load_lines<K, Lines, Wide, Both, Data::weights>(static_cast<const unsigned char *>(address), at, exact, to);
  }
  // Makes `packet` the one that the row is.
  template <int Bytes> DEVICE void store(const Packet<Bytes> &packet) const { port::store_packet(address, packet); }
};

// A packet in shared memory: a row whose column 0 is the packet's first.
template <int Bytes> using SharedPacket = SharedRow<packet_weights<Bytes>>;

// A row of K weights of a matrix in global memory.
template <int K> struct Row {
  static constexpr int bytes = SharedRow<K>::bytes;
  const void *address;

  // The row of the same matrix that is `r` rows below.
  DEVICE Row below(int r) const { return {static_cast<const bf16 *>(address) + size_t(r) * K}; }
  // The same row, with its columns counted from column i on.
  DEVICE Row from(int i) const { return {static_cast<const bf16 *>(address) + i}; }
  // The packet from column i on.
  template <int Bytes, L1 Keep> DEVICE Packet<Bytes> load(int i) const {
    return port::load_weights<Bytes, Keep>(static_cast<const bf16 *>(address) + i);
  }
  // The same, copied asynchronously.
  template <int Bytes> DEVICE void copy(SharedPacket<Bytes> to, int i) const {
    port::copy_async<Bytes>(to.address, static_cast<const bf16 *>(address) + i);
  }
};
