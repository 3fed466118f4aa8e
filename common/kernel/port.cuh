// Operations of CUDA under one name each, and all inline PTX: what the language has no word for.
#pragma once

using bf16 = unsigned short;

// The kind of data that a load reads.
enum class Data { weights, kv, activations };

// L1 policy of a load: data that is read once need not allocate a line.
enum class L1 { allocate, no_allocate };

// L2 policy of the lines that a copy reads: evicted first, or last.
enum class L2 { pass, keep };

// `Bytes` of memory in registers, as 32-bit words.
template <int Bytes> struct Packet {
  unsigned word[Bytes / 4];
};

// A barrier in shared memory that counts arrivals and bytes. Its phases follow one another; a phase is complete when so
// many have arrived as the barrier was initialized for, and all bytes that were expected have come.
using Mbarrier = unsigned long long;

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

DEVICE unsigned shared_address(const void *shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }

DEVICE unsigned long long l2_policy(L2 lines) {
  unsigned long long policy;
  if (lines == L2::pass)
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

namespace port {

DEVICE int thread() { return threadIdx.x; }
DEVICE int block() { return blockIdx.x; }
DEVICE int blocks() { return gridDim.x; }

// Stores the GPU's global timer in nanoseconds, which is the same for all SMs.
DEVICE void stamp(unsigned long long *to) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  *to = now;
}

DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned as_bits(float value) { return __float_as_uint(value); }
// The number that 16 bits are in fp16, also one below the smallest normal number, which arithmetic in fp32 would flush.
DEVICE float from_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
DEVICE void sincos_turns(double turns, double *sine, double *cosine) { sincospi(2 * turns, sine, cosine); }
// Wrong by a few units in the last place, but one instruction or two: correct rounding takes a dozen, one after the
// other.
DEVICE float rsqrt(float x) { return rsqrtf(x); }
DEVICE float quotient(float x, float y) { return __fdividef(x, y); }

// Weights are never written while a kernel runs, so they may use the read-only path (ld.global.nc). The compiler may
// move these loads up and keep many in flight, but not where the text does not load: an asm that is not volatile may be
// executed for nothing, with an address beyond the weights.
template <int Bytes, L1 Keep = L1::allocate> DEVICE Packet<Bytes> load_weights(const void *from) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a load is 32, 64 or 128 bits");
  Packet<Bytes> p;
  if constexpr (Bytes == 4) {
    p.word[0] = __ldg(reinterpret_cast<const unsigned *>(from));
  } else if constexpr (Bytes == 8) {
    if constexpr (Keep == L1::allocate) {
      const uint2 got = __ldg(reinterpret_cast<const uint2 *>(from));
      return {got.x, got.y};
    } else {
      asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                   : "=r"(p.word[0]), "=r"(p.word[1])
                   : "l"(from));
    }
  } else {
    if constexpr (Keep == L1::allocate) {
      const uint4 got = __ldg(reinterpret_cast<const uint4 *>(from));
      return {got.x, got.y, got.z, got.w};
    } else {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
                   : "l"(from));
    }
  }
  return p;
}

// The KV cache and the activations are written in the same launch, so they need coherent loads.
template <Data, int Bytes> DEVICE Packet<Bytes> load(const void *from) {
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
DEVICE float load_weight(const bf16 *from) { return __uint_as_float(unsigned(__ldg(from)) << 16); }
DEVICE float load_activation(const float *from) { return *from; }
DEVICE void store_activation(float *to, float value) { *to = value; }
DEVICE void store_kv(bf16 *to, bf16 value) { *to = value; }
DEVICE void store_kv(unsigned *to, unsigned value) { *to = value; }

// Prefetches the 128-byte line of `address` into L2. It does not wait and needs no register.
DEVICE void prefetch_l2(const void *address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// The same of `bytes`, by one thread. Address and size are multiples of 16. sm_90.
DEVICE void prefetch_bulk(const void *address, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
}

// As prefetch_l2, by a load whose value is not used. The load must be ld.volatile: ptxas removes any other dead load,
// even from a volatile asm.
DEVICE void touch_weights(const void *address) {
  [[maybe_unused]] unsigned ignored;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(ignored) : "l"(address));
}

// Among the block's computing threads: loader warps are not there.
DEVICE void block_barrier() {
  if constexpr (loader_warps == 0)
    __syncthreads();
  else
    asm volatile("bar.sync 0, %0;" ::"n"(block_threads) : "memory");
}
// Named barrier `id` (1 .. 15) among `threads` threads of the block: named_sync waits, named_arrive does not.
DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void warp_barrier() { __syncwarp(); }
DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Memory order between blocks: acquire and release at GPU scope. A release also orders what the block's other threads
// wrote before its last block barrier.
DEVICE unsigned add_acq_rel(unsigned *word, unsigned value) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
  return before;
}
DEVICE unsigned load_acquire(const unsigned *word) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
DEVICE void store_release(unsigned *word, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
DEVICE void max_relaxed(unsigned long long *word, unsigned long long value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
DEVICE unsigned long long exchange_relaxed(unsigned long long *word, unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
  return before;
}
// Words of flag-in-data exchanges. Relaxed at GPU scope: no other access is ordered by them.
DEVICE void publish(float *to, unsigned bits) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
}
DEVICE Packet<16> look(const float *from) {
  Packet<16> p;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from)
               : "memory");
  return p;
}
DEVICE void spin_pause() { __nanosleep(32); }
[[noreturn]] DEVICE void trap() {
  __threadfence_system(); // the host reads `waits` after the kernel has stopped
  asm volatile("trap;");
  __builtin_unreachable();
}

} // namespace port

#include "copies_port.cuh"

// A block's shared memory is one struct, which every mixin may extend. Static shared memory ends at 48 KB; above that
// it is dynamic, and the device reads its size from `shared_bytes` for the launch.
template <class Shared, bool Static = sizeof(Shared) <= 48 << 10> struct BlockMemory {
  static DEVICE void *get() {
    __shared__ Shared memory;
    return &memory;
  }
};
template <class Shared> struct BlockMemory<Shared, false> {
  static DEVICE void *get() {
    extern __shared__ uint4 dynamic[];
    return dynamic;
  }
};
#define SHARED_BYTES(Kernel) extern "C" __constant__ unsigned shared_bytes = sizeof(typename Kernel::Shared);

// The kernel that decodes `steps` tokens.
#define KERNEL_ENTRY(Kernel, Threads, BlocksPerSm)                                                                     \
  extern "C" __global__ void __launch_bounds__(Threads, BlocksPerSm)                                                   \
      decode(const bf16 *weights, bf16 *cache, float *scratch, unsigned *state, unsigned *waits, int steps) {          \
    run<Kernel>({weights, cache, scratch, state, waits}, BlockMemory<typename Kernel::Shared>::get(), steps);          \
  }                                                                                                                    \
  SHARED_BYTES(Kernel)

// The kernel of one stage, stage_<name>. Its last argument is the layer.
#define STAGE_ENTRY(Kernel, Threads, S)                                                                                \
  extern "C" __global__ void __launch_bounds__(Threads)                                                                \
      stage_##S(const bf16 *weights, bf16 *cache, float *scratch, unsigned *state, unsigned *waits, int layer) {       \
    run_stage<Kernel, Stage::S>({weights, cache, scratch, state, waits}, BlockMemory<typename Kernel::Shared>::get(),  \
                                layer);                                                                                \
  }

DEVICE float bf16_low(unsigned pair) { return port::as_float(pair << 16); }
DEVICE float bf16_high(unsigned pair) { return port::as_float(pair & 0xffff0000u); }

// Rounds to nearest, ties to even; a NaN stays a NaN.
DEVICE bf16 to_bf16(float value) {
  const unsigned bits = port::as_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

DEVICE int lane() { return port::thread() & 31; }
DEVICE int warp() { return port::thread() >> 5; }
