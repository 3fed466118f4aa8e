// Bandwidth of memory: read by 128-bit loads, and by asynchronous bulk copies (sm_90 and up). A launch goes over the
// data `passes` times, so that it is long. The result depends on every word: no load can be left out.
#include "common/kernel/asm.cuh"

#define STAGES 4
#define TILE 8192 // bytes of one bulk copy

// 1, 2, 3 and so on.
extern "C" __global__ void number_all(unsigned *data, size_t count) {
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) data[i] = i + 1;
}

// `count` 128-bit words; result: xor of all 32-bit words, if `passes` is odd. Each thread has several loads in flight,
// and the loads of a warp are coalesced.
extern "C" __global__ void read_all(const uint4 *data, size_t count, unsigned passes, unsigned *result) {
  constexpr int unroll = 8;
  const size_t stride = size_t(gridDim.x) * blockDim.x, first = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned bits = 0;
  ROLLED
  for (unsigned pass = 0; pass < passes; ++pass) {
    size_t i = first;
    for (; i + (unroll - 1) * stride < count; i += unroll * stride) {
      uint4 loaded[unroll];
      UNROLL
      for (int u = 0; u < unroll; ++u) loaded[u] = data[i + u * stride];
      UNROLL
      for (int u = 0; u < unroll; ++u) bits ^= loaded[u].x ^ loaded[u].y ^ loaded[u].z ^ loaded[u].w;
    }
    for (; i < count; i += stride) bits ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  }
  for (int lane = 16; lane > 0; lane /= 2) bits ^= __shfl_xor_sync(~0u, bits, lane);
  if (threadIdx.x % 32 == 0) atomicXor(result, bits);
}

// `count` tiles; the blocks take them in turn, with STAGES copies of each block in flight. result: as above.
extern "C" __global__ void read_bulk(const char *data, size_t count, unsigned passes, unsigned *result) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) unsigned char tiles[STAGES][TILE];
  __shared__ Mbarrier arrived[STAGES];
  const size_t first = blockIdx.x, stride = gridDim.x;
  const size_t turns = first < count ? (count - first + stride - 1) / stride * passes : 0;
  size_t next = first;                  // the tile of the next copy
  const auto issue = [&](size_t turn) { // one thread announces the bytes and starts the copy
    Mbarrier *barrier = &arrived[turn % STAGES];
    mbarrier_arrive_expect(barrier, TILE);
    copy_bulk(tiles[turn % STAGES], data + next * TILE, TILE, barrier);
    next = next + stride < count ? next + stride : first;
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) mbarrier_init(&arrived[s], 1);
    mbarrier_init_fence();
    for (int s = 0; s < STAGES && s < turns; ++s) issue(s);
  }
  __syncthreads();
  unsigned bits = 0;
  for (size_t turn = 0; turn < turns; ++turn) {
    for (unsigned tries = 0; !mbarrier_try_wait(&arrived[turn % STAGES], turn / STAGES); ++tries)
      if (tries >> 24) trap(); // bytes that never arrive must not hang the GPU
    const uint4 *words = reinterpret_cast<const uint4 *>(tiles[turn % STAGES]);
    for (int i = threadIdx.x; i < TILE / 16; i += blockDim.x) bits ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    __syncthreads(); // all have read the tile before the next one lands in it
    if (threadIdx.x == 0 && turn + STAGES < turns) {
      fence_proxy_async();
      issue(turn + STAGES);
    }
  }
  for (int lane = 16; lane > 0; lane /= 2) bits ^= __shfl_xor_sync(~0u, bits, lane);
  if (threadIdx.x % 32 == 0) atomicXor(result, bits);
#endif
}
