// Operations of the port for kernels of stages that are launched before the one in front of them has ended
// (programmatic dependent launch, sm_90): see port.cuh. On the host device launches follow one another, and these do
// nothing.
#pragma once
#include "port.cuh"

namespace port {

#ifdef __CUDACC__
// Returns when the kernel in front has ended and all that it wrote can be read; at once if there is none.
DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The next kernel may begin, once all blocks of this one have called it.
DEVICE void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
inline void await_previous() {}
inline void launch_next() {}
#endif

} // namespace port

// As STAGE_ENTRY, for a kernel whose `run_dependent` waits before it reads anything that changes.

#ifdef __CUDACC__
#define DEPENDENT_ENTRY(Kernel, Threads, S)                                                                            \
  extern "C" __global__ void __launch_bounds__(Threads)                                                                \
      stage_##S(const bf16 *weights, bf16 *cache, float *scratch, unsigned *state, unsigned *waits, int layer) {       \
    run_dependent<Kernel, Stage::S>({weights, cache, scratch, state, waits},                                           \
                                    BlockMemory<typename Kernel::Shared>::get(), layer);                               \
  }
#else
#define DEPENDENT_ENTRY(Kernel, Threads, S)                                                                            \
  inline void stage_##S(const host::Launch &l, void *shared) {                                                         \
    run_dependent<Kernel, Stage::S>({l.weights, l.cache, l.scratch, l.state, l.waits}, shared, l.last);                \
  }
#endif
