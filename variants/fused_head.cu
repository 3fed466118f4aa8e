// Idea        final norm, LM head and argmax in one pass: every block normalizes for itself, and the last block to
//             finish chooses the token
// Hypothesis  two grid barriers and a stage of one block are saved; several rows per warp keep more loads in flight in
//             the largest matrix (26 % of the weights of Qwen3-0.6B)
// Overrides   normalize, activations, lm_head, argmax, after
// Run         python -m experiments variant=fused_head rows_per_warp=4
#include "common/kernel/decode.cuh"

template <class Base> struct FusedHead : Base {
  using Self = typename Base::Self;
  using Packed = unsigned long long;
  static constexpr int rows = knob::fused_head::rows_per_warp;

  struct Shared : Base::Shared {
    alignas(16) float final_normalized[model::hidden];
  };

  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    if constexpr (S == Stage::final_norm)
      rmsnorm_redundant<Self, S>(c, layer, shared<Self>(c).final_normalized);
    else
      Base::template normalize<S>(c, layer);
  }

  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) {
    if constexpr (S == Stage::final_norm)
      return shared<Self>(c).final_normalized;
    else
      return Base::template activations<S>(c, layer);
  }

  static DEVICE void lm_head(const Context &c) {
    const auto job = with_input<Self, Stage::lm_head>(c, 0);
    const auto emit = Self::template emit<Stage::lm_head>(c, 0);
    Best best{negative_infinity(), 0};
    // equivalent: boundary moved: a row beyond the last repeats the last one, and is dropped
    for (int row = (int(blockIdx.x) * block_warps + warp()) * rows; row < model::vocab;
         row += int(gridDim.x) * block_warps * rows) {
      float sums[rows];
      UNROLL
      for (int r = 0; r < rows; ++r) { // rows beyond the last repeat it; their sums are dropped below
        const int here = row + r < model::vocab ? row + r : model::vocab - 1;
        sums[r] = dot_row<Self>(job.row(0, here), job.x);
      }
      UNROLL
      for (int r = 0; r < rows; ++r) {
        // equivalent: equality inverted: every lane has the sums, and stores the same value
        if (lane() != 0 || row + r >= model::vocab) continue;
        const float sum[] = {sums[r]};
        emit(row + r, sum);
        best = better(best, {sums[r], row + r});
      }
    }
    best = block_best(best, shared<Self>(c).best);
    if (threadIdx.x == 0) contribute(c, pack(best));
  }

  // A candidate as an integer that orders as `better` does: by value, then by lower index. -0 becomes +0, its equal.
  static DEVICE Packed pack(Best best) {
    // equivalent: arithmetic replaced: a sum that starts at +0 is never -0
    const unsigned bits = __float_as_uint(best.value + 0.0f);
    const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return Packed(ordered) << 32 | ~unsigned(best.index);
  }

  // Called by thread 0 of every block. The last to arrive reads the best of all blocks (its acquire orders their maxima
  // before that), publishes the token and clears the words for the next step.
  static DEVICE void contribute(const Context &c, Packed mine) {
    unsigned *head = c.state + state_at::head;
    Packed *best = reinterpret_cast<Packed *>(head);
    max_relaxed(best, mine);
    if (add_acq_rel(head + 2, 1) != gridDim.x - 1) return;
    head[2] = 0;
    // equivalent: 0 -> 1: the integer of every candidate is larger than 1
    Self::advance(c, ~unsigned(exchange_relaxed(best, 0)));
  }

  static DEVICE void argmax(const Context &) {}

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (S == Stage::final_norm)
      block_barrier();
    else if constexpr (S != Stage::lm_head)
      Base::template after<S>(c, layer);
  }
};
