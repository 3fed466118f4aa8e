// Idea        one kernel per token: every stage of every layer in one launch, blocks meeting at grid barriers
// Hypothesis  no launches and no host between stages; what remains is barriers, and bandwidth left unused around them
// Overrides   nothing: this is what the other variants are measured against
// Knobs       none
// Run         python -m experiments variant=baseline
#include "common/device/decode.cuh"

template <class Derived> struct Baseline : Decode<Derived> {
  using Self = Derived;

  // 64-bit loads of weights and cache, as the published kernels started from.
  static constexpr int load_bytes = 8;
  static constexpr L1 load_l1 = L1::allocate;

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (S != Stage::argmax) Self::template barrier<S>(c, layer);
  }
  template <Stage S> static DEVICE void barrier(const Context &c, int layer) { grid_barrier(c, S, layer); }

  // What the other threads of a block may do while one waits at a barrier of the block's own.
  template <Stage S> static DEVICE void while_waiting(const Context &, int) {}

  // Block 0 norms, the others wait at the barrier behind it.
  static DEVICE void input_norm(const Context &c, int layer) {
    norm_by_block_0<Stage::input_norm>(c, layer, residual(c, layer), layer_weights(c, weight_at::input_norm, layer));
  }
  static DEVICE void post_norm(const Context &c, int layer) {
    norm_by_block_0<Stage::post_norm>(c, layer, tap<Stage::o_proj>(c, layer),
                                      layer_weights(c, weight_at::post_norm, layer));
  }
  static DEVICE void final_norm(const Context &c) {
    norm_by_block_0<Stage::final_norm>(c, 0, residual(c, model::layers), c.weights + weight_at::final_norm);
  }
  template <Stage S> static DEVICE void norm_by_block_0(const Context &c, int layer, const float *x, const bf16 *gain) {
    if (port::block() != 0) return;
    float *out = tap<S>(c, layer);
    rmsnorm<Self>(x, gain, shared<Self>(c).sums, [&](int i, float value) { port::store_activation(out + i, value); });
  }

  // A warp per row.
  template <class Job, class Emit> static DEVICE void matvec(const Context &, const Job &job, Emit emit) {
    matvec_by_warp<Self>(job, emit);
  }

  // How many blocks attention keeps busy; the others go straight to the barrier.
  static DEVICE int attention_blocks(const Context &) { return model::heads; }

  // A block per query head; with fewer blocks than heads a block takes several.
  static DEVICE void attention(const Context &c, int layer) {
    for (int head = port::block(); head < model::heads; head += port::blocks()) Self::attend_head(c, layer, head);
  }
  static DEVICE void attend_head(const Context &c, int layer, int head) {
    float *out = tap<Stage::attention>(c, layer) + head * model::head_dim;
    attend_block<Self>(c, layer, head, 0, c.position + 1, shared<Self>(c).softmax,
                       [&](int i, float, float sum, float value) { port::store_activation(out + i, value / sum); });
    port::block_barrier(); // the parts are read before the next head overwrites them
  }
};
