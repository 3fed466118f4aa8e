// Idea        tensor cores multiply the columns of a warp: a lane has 16 bytes of a row of weights, and the input as
//             bf16 terms, three to an element, whose products are exact
// Hypothesis  an instruction of a warp multiplies 128 weights by three terms, where one of FFMA multiplies 32 and two
//             more unpack them; a full ring is read faster than memory fills it. With two tiles at once, each is
//             multiplied while the other waits for its loads, products and shuffles: 434 clocks, not 2 x 316
// Overrides   nothing
// Run         python -m experiments variant=tensor_rows tiles=1
#include "common/kernel/tensor.cuh"

// The input type that `columns` multiplies by, above or below it in the stack.
template <class Base> struct TensorRows : Base {
  using Self = typename Base::Self;
  template <int K> static constexpr int rows() { return fewer(Self::slot_bytes / Row<K>::bytes, most_sums); }
  template <int K> using Product = TensorInput<K, rows<K>(), knob::tensor_rows::tiles>;
  template <int K> static constexpr int bytes() { return Product<K>::bytes; }
  static constexpr int more(int a, int b) { return a < b ? b : a; }

  struct Shared : Base::Shared {
    alignas(16) unsigned char terms[more(bytes<model::hidden>(),
                                         more(bytes<model::query>(), bytes<model::intermediate>()))];
  };

  template <int K> struct Input : Product<K> {
    DEVICE explicit Input(const Context &c) : Product<K>(shared<Self>(c).terms) {}
  };
};
