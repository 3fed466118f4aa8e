// Operations of the port for kernels of stages that are launched before the one in front of them has ended
// (programmatic dependent launch, sm_90): see port.cuh.
#pragma once
#include "port.cuh"

namespace port {

// Returns when the kernel in front has ended and all that it wrote can be read; at once if there is none.
DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The next kernel may begin, once all blocks of this one have called it.
DEVICE void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

} // namespace port

// As STAGE_ENTRY, for a kernel whose `run_dependent` waits before it reads anything that changes.

#define DEPENDENT_ENTRY(Kernel, Threads, S)                                                                            \
  extern "C" __global__ void __launch_bounds__(Threads)                                                                \
      stage_##S(const bf16 *weights, bf16 *cache, float *scratch, unsigned *state, unsigned *waits, int layer) {       \
    run_dependent<Kernel, Stage::S>({weights, cache, scratch, state, waits},                                           \
                                    BlockMemory<typename Kernel::Shared>::get(), layer);                               \
  }
