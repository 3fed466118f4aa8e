// Idea        no megakernel: the same stages as separate kernels, replayed as one CUDA graph or launched one by one
// Hypothesis  a graph's nodes cost about as much as grid barriers do, so this is the rival a megakernel has to beat
// Overrides   the launch; a kernel's end takes the place of each grid barrier
// Knobs       how: graph | launches
// Run         python -m experiments variant=graph how=launches
#include "common/device/decode.cuh"

template <class Base> struct Graph : Base {};
