// Idea        128-bit loads of weights, cache and norm vectors instead of 64-bit ones
// Hypothesis  half as many load instructions for the same bytes, and twice the bytes in flight per load; weights are
//             read once, so they need not push anything out of L1
// Overrides   the width of every wide load, in all stages
// Knobs       l1: default | no_allocate
// Run         python -m experiments variant=vec128 l1=no_allocate
#include "common/device/decode.cuh"

template <class Base> struct Vec128 : Base {
  static constexpr int load_bytes = 16;
  static constexpr L1 load_l1 = knob::vec128::l1_is_no_allocate ? L1::no_allocate : L1::allocate;
};
