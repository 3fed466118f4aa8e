// Idea        every block norms the residual stream for itself, into its own shared memory
// Hypothesis  4 KB read again by each block costs less than a grid barrier behind a norm that one block does alone:
//             two barriers per layer go (56 of 227 at 28 layers)
// Overrides   input_norm, post_norm and the barriers behind them
// Knobs       none
// Run         python -m experiments variant=redundant_rmsnorm
#include "common/device/decode.cuh"

template <class Base> struct RedundantRmsnorm : Base {
  using Self = typename Base::Self;

  struct Shared : Base::Shared {
    alignas(16) float normed[model::hidden];
  };

  static constexpr bool here(Stage s) { return s == Stage::input_norm || s == Stage::post_norm; }

  static DEVICE void input_norm(const Context &c, int layer) {
    rmsnorm_redundant<Self, Stage::input_norm>(c, layer, residual(c, layer),
                                               layer_weights(c, weight_at::input_norm, layer), shared<Self>(c).normed);
  }
  static DEVICE void post_norm(const Context &c, int layer) {
    rmsnorm_redundant<Self, Stage::post_norm>(c, layer, tap<Stage::o_proj>(c, layer),
                                              layer_weights(c, weight_at::post_norm, layer), shared<Self>(c).normed);
  }

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (here(S))
      port::block_barrier();
    else
      Base::template after<S>(c, layer);
  }

  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) {
    if constexpr (here(S))
      return shared<Self>(c).normed;
    else
      return Base::template activations<S>(c, layer);
  }
};
