// Exchanges between all blocks while other warps load: one block on each SM. READERS threads of a block exchange; the
// threads after them load, until the exchanges are done or `most` turns are. `data` is all ones, so the sum of what is
// loaded counts it; every load is used. PAUSE: nanoseconds between two polls of an exchange.
#define WORDS 1024  // that are exchanged
#define READERS 256 // threads
#define BATCH 4     // loads under way of each loading thread; ptxas uses some before it sends more than that
#define SLOTS 32    // in the ring of bulk copies, at most

__device__ __forceinline__ void trap_after(unsigned &tries) {
  if (++tries >> 24) asm volatile("trap;"); // what never arrives must not hang the GPU
}

// Rounds in which each block publishes its words and waits for all of them. A word is the number of its round, so it
// says itself that it has arrived: no flag, no barrier of the grid. A faster block may already be in the next round.
// The words of a block are neighbours, as the rows of a block are: words of eight blocks in each sector take twice as
// long (1.97 us and 0.95 on an H200, record 20261127T172848-h200probe0).
__device__ __forceinline__ void exchange(unsigned *mail, unsigned rounds) {
  const unsigned mine = WORDS * blockIdx.x / gridDim.x + threadIdx.x, end = WORDS * (blockIdx.x + 1) / gridDim.x;
  for (unsigned round = 1; round <= rounds; ++round) {
    if (mine < end) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(mail + mine), "r"(round) : "memory");
    unsigned tries = 0;
    bool waits;
    do {
      uint4 v;
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(mail + 4 * threadIdx.x)
                   : "memory");
      trap_after(tries);
      waits = min(min(v.x, v.y), min(v.z, v.w)) < round;
      if (PAUSE && waits) __nanosleep(PAUSE);
    } while (waits);
    asm volatile("bar.sync 1, %0;" ::"n"(READERS) : "memory"); // the block's next words depend on all of these
  }
}

// Whether this thread is a reader. Then the exchanges are over, and `done`, of the block's shared memory, says so to
// its loading threads.
__device__ __forceinline__ bool reads(unsigned *mail, unsigned rounds, unsigned &done) {
  if (threadIdx.x == 0) done = 0;
  __syncthreads();
  if (threadIdx.x >= READERS) return false;
  exchange(mail, rounds);
  if (rounds && threadIdx.x == 0) *(volatile unsigned *)&done = 1;
  return true;
}

// mail: WORDS zeros. count: 128-bit words of data, in each block's part at least as many as threads that load. loaders:
// threads of a block that load, BATCH words at once, after the READERS. Each block goes around in its own part of data:
// parts are larger than L2 together, so all of it comes from memory. In one ring for all, blocks followed others
// through what L2 still had, at 4.3 TB/s on an H100 whose memory gives 3.1. loaded, clocks: of each block, zeros at
// first; words of 4 bytes, and cycles of its loading threads.
extern "C" __global__ void __launch_bounds__(1024)
    exchange_plain(unsigned *mail, unsigned rounds, const uint4 *data, size_t count, unsigned most, unsigned loaders,
                   unsigned long long *loaded, unsigned long long *clocks) {
  __shared__ unsigned done;
  if (reads(mail, rounds, done)) return;
  const long long start = clock64();
  const size_t part = count / gridDim.x;
  const uint4 *const own = data + blockIdx.x * part;
  size_t at = threadIdx.x - READERS;
  unsigned long long sum = 0;
#pragma unroll 1
  for (unsigned turn = 0; turn < most && !*(volatile unsigned *)&done; ++turn) {
    uint4 v[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[b].x), "=r"(v[b].y), "=r"(v[b].z), "=r"(v[b].w)
                   : "l"(own + at));
      at = at + loaders < part ? at + loaders : at + loaders - part;
    }
#pragma unroll
    for (int b = 0; b < BATCH; ++b) sum += v[b].x + v[b].y + v[b].z + v[b].w;
  }
  atomicAdd(loaded + blockIdx.x, sum);
  atomicMax(clocks + blockIdx.x, (unsigned long long)(clock64() - start));
}

__device__ __forceinline__ unsigned shared_address(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }

// The same with one loading thread, whose bulk copies of `tile` bytes go around `slots` places of a ring. count: of
// tiles, at least as many as blocks. The sum is that of each tile's first word, times its words.
extern "C" __global__ void __launch_bounds__(512)
    exchange_bulk(unsigned *mail, unsigned rounds, const uint4 *data, size_t count, unsigned most, unsigned slots,
                  unsigned tile, unsigned long long *loaded, unsigned long long *clocks) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ alignas(8) unsigned long long arrived[SLOTS];
  __shared__ unsigned done;
  if (reads(mail, rounds, done)) return;
  const long long start = clock64();
  if (threadIdx.x > READERS) return;
  const size_t part = count / gridDim.x;
  const char *const own = (const char *)data + blockIdx.x * part * tile;
  size_t next = 0;
  const auto issue = [&](unsigned slot) {
    const unsigned barrier = shared_address(&arrived[slot]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(tile) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(ring + slot * tile)),
                 "l"(own + next * tile), "r"(tile), "r"(barrier)
                 : "memory");
    next = next + 1 < part ? next + 1 : 0;
  };
  for (unsigned s = 0; s < slots; ++s)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[s])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  unsigned issued = 0, landed = 0, slot = 0, parity = 0;
  while (issued < slots && issued < most) issue(issued++);
  unsigned long long sum = 0;
  while (landed < issued) { // what is under way lands before the block ends
    unsigned arrival = 0, tries = 0;
    while (!arrival) {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(arrival)
                   : "r"(shared_address(&arrived[slot])), "r"(parity)
                   : "memory");
      trap_after(tries);
    }
    sum += *(const volatile unsigned *)(ring + slot * tile) * (tile / 4);
    ++landed;
    if (issued < most && !*(volatile unsigned *)&done) {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // the word was read before the next copy lands
      issue(slot);
      ++issued;
    }
    if (++slot == slots) slot = 0, parity ^= 1;
  }
  loaded[blockIdx.x] = sum;
  clocks[blockIdx.x] = clock64() - start;
#endif
}

// Every block adds 1 to each of WORDS counters, `rounds` times: the adds of sums over blocks, READERS threads.
extern "C" __global__ void counted_adds(unsigned long long *counters, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round)
    for (unsigned i = threadIdx.x; i < WORDS; i += blockDim.x) atomicAdd(counters + (i + 8 * blockIdx.x) % WORDS, 1);
}
