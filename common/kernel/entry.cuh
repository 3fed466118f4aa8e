// Entry points of kernels, and the shared memory of their blocks.
#pragma once
#include "device.cuh"

// A block's shared memory is one struct, which every mixin may extend. Above 48 KB, the limit of static shared memory,
// it is dynamic; the host reads its size from `shared_bytes`.
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
      decode(const Weight *weights, Cache *cache, float *scratch, unsigned *state, unsigned *waits, int steps) {       \
    run<Kernel>({weights, cache, scratch, state, waits}, BlockMemory<typename Kernel::Shared>::get(), steps);          \
  }                                                                                                                    \
  SHARED_BYTES(Kernel)

// The kernel of one stage, stage_<name>. Its last argument is the layer.
#define STAGE_ENTRY(Kernel, Threads, S)                                                                                \
  extern "C" __global__ void __launch_bounds__(Threads)                                                                \
      stage_##S(const Weight *weights, Cache *cache, float *scratch, unsigned *state, unsigned *waits, int layer) {    \
    run_stage<Kernel, Stage::S>({weights, cache, scratch, state, waits}, BlockMemory<typename Kernel::Shared>::get(),  \
                                layer);                                                                                \
  }

// The same for a kernel that starts before the previous one has ended: `run_dependent` waits for that end before it
// reads anything that changes.
#define DEPENDENT_ENTRY(Kernel, Threads, S)                                                                            \
  extern "C" __global__ void __launch_bounds__(Threads)                                                                \
      stage_##S(const Weight *weights, Cache *cache, float *scratch, unsigned *state, unsigned *waits, int layer) {    \
    run_dependent<Kernel, Stage::S>({weights, cache, scratch, state, waits},                                           \
                                    BlockMemory<typename Kernel::Shared>::get(), layer);                               \
  }
