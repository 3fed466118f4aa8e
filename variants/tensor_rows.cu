// Idea        tensor cores multiply the columns of a warp: a lane has 16 bytes of a row of weights, and the input as
//             bf16 terms, three to an element, whose products are exact
// Hypothesis  one mma of a warp multiplies 128 weights by three terms; an FFMA multiplies 32, and unpacking takes two
//             instructions more: a full ring is read faster than memory fills it. Weights are loaded before the input
//             arrives, or while lanes add up earlier products: a pair of tiles took 700 clocks, 256 of them loads
// Overrides   nothing
// Run         python -m experiments variant=tensor_rows products=1
#include "common/kernel/tensor.cuh"

// Gives `columns` its input type, from above or below it in the stack.
template <class Base> struct TensorRows : Base {
  using Self = typename Base::Self;
  // equivalent: / -> *: how many rows a product has decides the time; it goes as far as a tile
  template <class Row> static constexpr int rows() { return min_of(Self::slot_bytes / Row::bytes, max_sums); }
  template <class Row> using Product = TensorInput<Row::columns, rows<Row>(), knob::tensor_rows::products>;
  template <class Format, int K> static constexpr int bytes() { return Product<Row<Format, K>>::bytes; }
  static constexpr int max_of(int a, int b) { return a < b ? b : a; }
  static constexpr int most() {
    constexpr int of_query = bytes<LayerFormat, model::query>(), of_head = bytes<HeadFormat, model::hidden>();
    constexpr int of_intermediate = bytes<LayerFormat, model::intermediate>();
    return max_of(max_of(bytes<LayerFormat, model::hidden>(), of_head), max_of(of_query, of_intermediate));
  }

  struct Shared : Base::Shared {
    alignas(16) unsigned char terms[most()];
  };

  template <class Row> struct Input : Product<Row> {
    static DEVICE bf16 *place(const Context &c) { return reinterpret_cast<bf16 *>(shared<Self>(c).terms); }
    template <class From> DEVICE void take(const Context &c, const From &from) { Product<Row>::take(place(c), from); }
    template <class From>
    DEVICE float take_and_scale(const Context &c, const From &from, const typename Product<Row>::Gains &gain) {
      return Product<Row>::take_and_scale(place(c), from, gain);
    }
  };
};
