// All inline PTX: what CUDA has no function for, or none with the memory order or cache policy that is needed.
#pragma once
#include "device.cuh"

// The GPU's global timer in nanoseconds, which is the same for all SMs.
DEVICE unsigned long long global_timer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

// threadIdx.x, read again in each call: otherwise the compiler keeps every index derived from it in registers through
// the whole launch, dozens a stage.
DEVICE int thread_anew() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// fp16 to fp32. Subnormal numbers survive: they are normal in fp32, whose own subnormals are flushed.
DEVICE float from_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// a * b + c of the two bf16 in each word. Subnormal numbers are not flushed. sm_80.
DEVICE unsigned fma_bf16x2(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Weights are never written while a kernel runs, so loads may use the read-only path (ld.global.nc), and the compiler
// may move them up to keep many in flight. A volatile asm stays behind its bounds check; one that is not may be
// executed speculatively, with an address beyond the weights.
template <int Bytes, L1 Keep = L1::allocate> DEVICE Packet<Bytes> load_weights(const Weight *weights) {
  const void *from = weights;
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

DEVICE float load_weight(const Weight *from) {
  return __uint_as_float(unsigned(__ldg(reinterpret_cast<const bf16 *>(from))) << 16);
}

// Prefetches the 128-byte line of `address` into L2. It does not wait and needs no register.
DEVICE void prefetch_l2(const void *address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Prefetches `bytes` into L2, by one thread. Address and size are multiples of 16. sm_90.
DEVICE void prefetch_bulk(const void *address, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
}

// As prefetch_l2, by a load whose value is unused: ld.volatile, since ptxas removes any other dead load, even from a
// volatile asm.
DEVICE void touch_weights(const void *address) {
  [[maybe_unused]] unsigned ignored;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(ignored) : "l"(address));
}

// Barrier of the block's computing threads, without loader warps.
DEVICE void block_barrier() {
  if constexpr (loader_warps == 0)
    __syncthreads();
  else
    asm volatile("bar.sync 0, %0;" ::"n"(block_threads) : "memory");
}
// Named barrier `id` (1 .. 15) among `threads` threads of the block: named_sync waits, named_arrive does not.
DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

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
DEVICE void store_relaxed(float *to, unsigned bits) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
}
DEVICE Packet<16> load_relaxed(const float *from) {
  Packet<16> p;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from)
               : "memory");
  return p;
}
DEVICE void add_relaxed(unsigned long long *word, unsigned long long value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Two neighbouring words, each read as a whole.
DEVICE void load_relaxed_pair(const unsigned long long *from, unsigned long long *to) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(to[0]), "=l"(to[1]) : "l"(from) : "memory");
}

// Orders at GPU scope what this thread did or saw before it, and what a block barrier ordered before that, before its
// later accesses. It synchronizes with a fence of a thread that has first loaded what this one stores afterwards.
DEVICE void fence_acq_rel() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

[[noreturn]] DEVICE void trap() {
  __threadfence_system(); // the host reads `waits` after the kernel has stopped
  asm volatile("trap;");
  __builtin_unreachable();
}

// Returns when the kernel launched before has ended and its writes are visible; at once if there is none.
DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Allows the next kernel to start once all blocks of this one have called it.
DEVICE void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

DEVICE unsigned shared_address(const void *shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }

DEVICE unsigned long long l2_policy(L2 lines) {
  unsigned long long policy;
  if (lines == L2::pass)
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// A barrier in shared memory that counts arrivals and bytes. A phase is complete when as many threads have arrived as
// the barrier was initialized for, and all expected bytes have landed; then the next phase begins.
using Mbarrier = unsigned long long;

// Asynchronous copies from global to shared memory. After copy_wait the lane that copied may read the data.
template <int Bytes> DEVICE void copy_async(void *shared, const void *global) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  const unsigned to = shared_address(shared);
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(Bytes) : "memory");
}
// Copies 16 bytes with an L2 policy.
DEVICE void copy_async(void *shared, const void *global, L2 lines) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "l"(l2_policy(lines))
               : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Newest> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory"); }

// Operations on an Mbarrier, sm_80. Phases are numbered from 0.
DEVICE void mbarrier_init(Mbarrier *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Makes the barriers that this thread initialized usable by its bulk copies; other threads need a block barrier, too.
DEVICE void mbarrier_init_fence() {
#if __CUDA_ARCH__ >= 900 // the first that has bulk copies
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
DEVICE void mbarrier_arrive(Mbarrier *barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and adds `bytes` to those that the phase waits for.
DEVICE void mbarrier_arrive_expect(Mbarrier *barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Arrives when all copy_async of this thread so far have landed; a thread that has waited for the phase may read them.
// The arrival of the copies, for which the phase takes one more, is no release: the thread's own after it is.
DEVICE void mbarrier_arrive_copied(Mbarrier *barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
  mbarrier_arrive(barrier);
}
// True if the phase is complete; what its arrivals and copies wrote is then visible. False after about a microsecond,
// before sm_90 at once.
DEVICE bool mbarrier_try_wait(Mbarrier *barrier, unsigned phase) {
  unsigned complete;
  asm volatile("{\n.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
               "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2, 1000;\n"
#else
               "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
#endif
               "selp.u32 %0, 1, 0, p;\n }"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(phase & 1)
               : "memory");
  return complete != 0;
}
// Copies bytes into shared memory. They count as arrived for the barrier's phase in progress, which must expect them.
// Addresses and size are multiples of 16 bytes. What threads have stored in either place needs fence_proxy_async; what
// they have only read there needs their release, which this thread has acquired. sm_90.
DEVICE void copy_bulk(void *shared, const void *global, unsigned bytes, Mbarrier *barrier, L2 lines = L2::pass) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(l2_policy(lines))
      : "memory");
}
// Orders stores, this thread's and those that it has acquired, before its later bulk copies that read or overwrite what
// was stored. For stores of another block it stands in the block that copies, after the acquire.
DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

// A lane's four fp32 sums of each of `M` products by tensor cores.
template <int M> struct Products {
  float sums[M][4];
};

// Product of a bf16 matrix `a`, 16 x 32 N, with each of `M` matrices in `b`, 32 N x 8, by all lanes of a warp. With
// g = lane / 4 and q = lane % 4, a lane holds elements 8 q to 8 q + 7 of every 32 along the inner dimension: for `a` in
// two packets, whose words alternate between rows g and g + 8; for `b` in one packet, of column g. It gets the sums in
// columns 2 q and 2 q + 1 of row g, then of row g + 8.
// Products are exact; the order and the rounding of sums differ between GPUs. sm_80.
template <int N, int M> DEVICE Products<M> multiply_add(const Packet<16> *a, const Packet<16> *b) {
  Products<M> all;
  UNROLL
  for (int m = 0; m < M; ++m) {
    // equivalent: 1 -> 2: how many sums there are at once decides the time
    constexpr int apart = M == 1 ? 2 : 1; // alternating sums: no mma waits for the one right before it
    float sum[2][4] = {};
    UNROLL
    for (int i = 0; i < 2 * N; ++i) {
      float (&s)[4] = sum[i % apart];
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
          : "r"(a[i].word[0]), "r"(a[i].word[1]), "r"(a[i].word[2]), "r"(a[i].word[3]),
            "r"(b[m * N + i / 2].word[i % 2 * 2]), "r"(b[m * N + i / 2].word[i % 2 * 2 + 1]));
    }
    UNROLL
    for (int j = 0; j < 4; ++j) all.sums[m][j] = apart == 1 ? sum[0][j] : sum[0][j] + sum[1][j];
  }
  return all;
}
