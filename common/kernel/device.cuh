// Types, packets in registers, bf16, and lane and warp numbers: used by every device text.
#pragma once

using bf16 = unsigned short;

// A type for each buffer: pointers do not convert, so a load, copy or store of the wrong buffer does not compile.
// Scratch is float, and the state unsigned.
enum class Weight : bf16 {}; // 16 bits of the weights, which nothing writes while a kernel runs
enum class Cache : bf16 {};  // 16 bits of the KV cache; entries.cuh has its format

// L1 policy of a load: data that is read once need not allocate a line.
enum class L1 { allocate, no_allocate };

// L2 policy of a copy: its lines are evicted first, or last.
enum class L2 { pass, keep };

// `Bytes` of memory in registers, as 32-bit words.
template <int Bytes> struct Packet {
  unsigned word[Bytes / 4];
};

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

constexpr unsigned all_lanes = 0xffffffffu; // mask of a warp's shuffles

DEVICE int lane() { return threadIdx.x & 31; }
DEVICE int warp() { return int(threadIdx.x) >> 5; }

// Coherent load or store of a packet: in shared memory, or in buffers that the same launch writes.
template <int Bytes> DEVICE Packet<Bytes> load_packet(const void *from) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a load is 32, 64 or 128 bits");
  if constexpr (Bytes == 4) return {*static_cast<const unsigned *>(from)};
  if constexpr (Bytes == 8) {
    const uint2 v = *static_cast<const uint2 *>(from);
    return {v.x, v.y};
  }
  if constexpr (Bytes == 16) {
    const uint4 v = *static_cast<const uint4 *>(from);
    return {v.x, v.y, v.z, v.w};
  }
}
template <int Bytes> DEVICE void store_packet(void *to, const Packet<Bytes> &p) {
  if constexpr (Bytes == 4) *static_cast<unsigned *>(to) = p.word[0];
  if constexpr (Bytes == 8) *static_cast<uint2 *>(to) = {p.word[0], p.word[1]};
  if constexpr (Bytes == 16) *static_cast<uint4 *>(to) = {p.word[0], p.word[1], p.word[2], p.word[3]};
}

DEVICE float bf16_low(unsigned pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

// Rounds to nearest, ties to even; a NaN stays a NaN.
DEVICE bf16 to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  // not executed: a launch that passes rounds no NaN; tests/ptx/test_execution.py does
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
