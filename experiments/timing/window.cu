// Reading with a given number of bytes under way on each SM, whose only block it is. `data` is all ones, so the sum of
// what is loaded counts it; every load is used. Each block goes around in its own part of data: parts are larger than
// L2 together, so all of it comes from memory. In one ring for all, blocks followed others through what L2 still had,
// at 4.3 TB/s on an H100 whose memory gives 3.1.
#include "common/kernel/asm.cuh"

#define BATCH 4  // loads under way of each thread; ptxas uses some before it sends more than that
#define SLOTS 32 // in the ring of bulk copies, at most

// `turns` times BATCH loads of each of a block's threads, the loaders. count: 128-bit words of data, in each block's
// part at least as many as loaders. loaded, clocks: of each block, zeros at first; words of 4 bytes, and cycles.
extern "C" __global__ void __launch_bounds__(1024)
    window_plain(const Weight *data, size_t count, unsigned turns, unsigned loaders, unsigned long long *loaded,
                 unsigned long long *clocks) {
  constexpr int packet = 16 / sizeof(Weight);
  const long long start = clock64();
  const size_t part = count / gridDim.x;
  const Weight *const own = data + blockIdx.x * part * packet;
  size_t at = threadIdx.x;
  unsigned long long sum = 0;
  ROLLED
  for (unsigned turn = 0; turn < turns; ++turn) {
    Packet<16> p[BATCH];
    UNROLL
    for (int b = 0; b < BATCH; ++b) {
      p[b] = load_weights<16, L1::no_allocate>(own + at * packet);
      at = at + loaders < part ? at + loaders : at + loaders - part;
    }
    UNROLL
    for (int b = 0; b < BATCH; ++b) sum += p[b].word[0] + p[b].word[1] + p[b].word[2] + p[b].word[3];
  }
  atomicAdd(loaded + blockIdx.x, sum);
  atomicMax(clocks + blockIdx.x, (unsigned long long)(clock64() - start));
}

// `turns` bulk copies of `tile` bytes by one thread, around `slots` places of a ring. count: of tiles, at least as many
// as blocks. The sum is that of each tile's first word, times its words.
extern "C" __global__ void window_bulk(const Weight *data, size_t count, unsigned turns, unsigned slots, unsigned tile,
                                       unsigned long long *loaded, unsigned long long *clocks) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ Mbarrier arrived[SLOTS];
  if (threadIdx.x != 0) return;
  const long long start = clock64();
  const size_t part = count / gridDim.x;
  const Weight *const own = data + blockIdx.x * part * tile / sizeof(Weight);
  size_t next = 0;
  const auto issue = [&](unsigned slot) {
    mbarrier_arrive_expect(&arrived[slot], tile);
    copy_bulk(ring + slot * tile, own + next * tile / sizeof(Weight), tile, &arrived[slot]);
    next = next + 1 < part ? next + 1 : 0;
  };
  for (unsigned s = 0; s < slots; ++s) mbarrier_init(&arrived[s], 1);
  mbarrier_init_fence();
  unsigned long long sum = 0;
  for (unsigned s = 0; s < slots && s < turns; ++s) issue(s);
  for (unsigned turn = 0; turn < turns; ++turn) {
    const unsigned slot = turn % slots;
    for (unsigned tries = 0; !mbarrier_try_wait(&arrived[slot], turn / slots); ++tries)
      if (tries >> 24) trap(); // bytes that never arrive must not hang the GPU
    sum += *(const volatile unsigned *)(ring + slot * tile) * (tile / 4);
    if (turn + slots < turns) {
      fence_proxy_async(); // the word was read before the next copy lands
      issue(slot);
    }
  }
  loaded[blockIdx.x] = sum;
  clocks[blockIdx.x] = clock64() - start;
#endif
}
