// Idea        tensor cores multiply the columns of a warp: weights by ldmatrix out of the ring, the input as three bf16
//             terms whose products are exact
// Hypothesis  an instruction of a warp multiplies 256 weights by three terms, where one of FFMA multiplies 32 and two
//             more unpack them; a full ring is read faster than memory fills it
// Overrides   nothing
// Run         python -m experiments variant=tensor_rows
#include "common/kernel/tensor.cuh"

// What `columns` multiplies by, above it or below it in the stack.
template <class Base> struct TensorRows : Base {
  template <int K> using Input = TensorInput<K>;
};
