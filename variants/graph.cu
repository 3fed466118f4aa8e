// Idea        no megakernel: the same stages as separate kernels, replayed as one CUDA graph or launched one by one;
//             the end of a kernel replaces each grid barrier
// Hypothesis  the nodes of a graph cost about as much as grid barriers, so this is the rival that a megakernel has to
//             beat
// Overrides   nothing
// Run         python -m experiments variant=graph how=launches
#include "common/kernel/decode.cuh"

template <class Base> struct Graph : Base {};
