// Bandwidth of memory: read by asynchronous bulk copies (sm_90 and up), and copied. Plain reads are in
// experiments/timing/bandwidth.py. The result depends on every word, so no load can be left out.
#define STAGES 4
#define TILE 8192 // bytes of one bulk copy

__device__ __forceinline__ unsigned shared_address(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }

// `count` tiles; the blocks take them in turn, with STAGES copies of each block in flight. result: xor of all words.
extern "C" __global__ void read_bulk(const char *data, unsigned long long count, unsigned *result) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) unsigned char tiles[STAGES][TILE];
  __shared__ alignas(8) unsigned long long arrived[STAGES];
  const unsigned long long first = blockIdx.x, stride = gridDim.x;
  const unsigned long long mine = first < count ? (count - first + stride - 1) / stride : 0;
  const auto issue = [&](unsigned long long turn) { // one thread starts the copy and announces its bytes
    const unsigned slot = turn % STAGES, barrier = shared_address(&arrived[slot]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(TILE) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(tiles[slot])),
                 "l"(data + (first + turn * stride) * TILE), "r"(TILE), "r"(barrier)
                 : "memory");
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[s])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int s = 0; s < STAGES && s < mine; ++s) issue(s);
  }
  __syncthreads();
  unsigned bits = 0;
  for (unsigned long long turn = 0; turn < mine; ++turn) {
    const unsigned slot = turn % STAGES, parity = turn / STAGES % 2;
    unsigned done = 0;
    for (unsigned tries = 0; !done; ++tries) {
      if (tries >> 24) asm volatile("trap;"); // bytes that never arrive must not hang the GPU
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(shared_address(&arrived[slot])), "r"(parity)
                   : "memory");
    }
    const uint4 *words = reinterpret_cast<const uint4 *>(tiles[slot]);
    for (int i = threadIdx.x; i < TILE / 16; i += blockDim.x) bits ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    __syncthreads(); // all have read the tile before the next one lands in it
    if (threadIdx.x == 0 && turn + STAGES < mine) {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      issue(turn + STAGES);
    }
  }
  for (int lane = 16; lane > 0; lane /= 2) bits ^= __shfl_xor_sync(~0u, bits, lane);
  if (threadIdx.x % 32 == 0) atomicXor(result, bits);
#endif
}

// `count` 128-bit words from one half to the other.
extern "C" __global__ void copy_all(const uint4 *from, uint4 *to, unsigned long long count) {
  const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
    to[i] = from[i];
}
