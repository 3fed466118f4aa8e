// Idea        several tokens in a step: the next one, and drafts of those after it, each at its own position; choices
//             are kept up to and with the first that differs from the draft of its position
// Hypothesis  a step for k tokens reads every weight once and passes as many barriers as a step for one, so its time is
//             divided by the tokens it keeps, until k products of a row take longer than loading its bytes
// Overrides   tokens, of, embed, normalize, qk_norm_rope, multiply, lm_head, argmax
// Run         python -m experiments variant=verify tokens=4
#include "common/kernel/decode.cuh"
#include "common/kernel/drafts.cuh"

template <class Base> struct Verify : Base {
  using Self = typename Base::Self;
  static constexpr int tokens = knob::verify::tokens;

  // If stages keep whole inputs in shared memory, each token has its own copy of the struct, one after another. Columns
  // hold inputs in registers: tokens take turns in a single struct.
  static constexpr bool copies = Base::whole_inputs;
  template <bool Copies, class Own> struct OfAll : Own {
    Own others[tokens - 1];
  };
  template <class Own> struct OfAll<false, Own> : Own {};
  using Shared = OfAll<copies, typename Base::Shared>;
  static_assert(!copies || loader_warps == 0,
                "tokens of a step take turns in a ring by `columns`: add it to the stack");

  // Token n of a step: its position, its id, and its part of the scratch and of the shared memory. Without a draft the
  // id is 0: any will do, since no choice agrees with `no_draft`.
  static DEVICE Context of(const Context &c, int n) {
    Context own = c;
    const int behind = n - c.number; // `c` may be the context of another token of the step
    own.scratch += behind * static_cast<long long>(scratch_at::step_size);
    own.number = n, own.position += behind;
    own.token = int(c.state[state_at::ids + own.position]) < 0 ? 0 : c.state[state_at::ids + own.position];
    own.shared = static_cast<typename Base::Shared *>(c.shared) + (copies ? behind : 0);
    return own;
  }
  // Called before the next token of the same stage.
  static DEVICE void next() {
    if constexpr (!copies) block_barrier();
  }

  static DEVICE void embed(const Context &c) {
    for (int n = 0; n < tokens; ++n) Base::embed(of(c, n));
  }

  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    for (int n = 0; n < tokens; ++n, next()) Base::template normalize<S>(of(c, n), layer);
  }

  // Attention follows a grid barrier, so the entries of earlier tokens are in the cache. Without a stage of their own
  // for heads, every block makes them.
  static DEVICE void qk_norm_rope(const Context &c, int layer) {
    if constexpr (!Base::heads_apart) return;
    constexpr int heads = model::heads + 2 * model::kv_heads;
    for (int i = int(blockIdx.x) * block_warps + warp(); i < tokens * heads; i += int(gridDim.x) * block_warps)
      Self::norm_rope_store(of(c, i / heads), layer, i % heads);
  }

  template <Stage S> static DEVICE void multiply(const Context &c, int layer) {
    products<S>(c, layer,
                [&](int n, int row, const auto &sums) { Self::template emit<S>(of(c, n), layer)(row, sums); });
  }

  static DEVICE void lm_head(const Context &c) {
    Best best[tokens];
    UNROLL
    for (int n = 0; n < tokens; ++n) best[n] = {negative_infinity(), 0};
    products<Stage::lm_head>(c, 0, [&](int n, int row, const auto &sums) {
      Self::template emit<Stage::lm_head>(of(c, n), 0)(row, sums);
      UNROLL
      for (int each = 0; each < tokens; ++each) // an index would put `best` in local memory
        if (each == n) best[each] = better(best[each], {sums[0], row});
    });
    UNROLL
    for (int n = 0; n < tokens; ++n) {
      store_best<Self>(of(c, n), best[n]);
      next();
    }
  }

  // The products of stage S, by a warp per row or by columns. One thread calls `finish(n, row, sums)` for token n.
  template <Stage S, class Finish> static DEVICE void products(const Context &c, int layer, Finish finish) {
    if constexpr (copies)
      products_by_warp<S>(c, layer, finish);
    else
      Base::template column_products<S>(c, layer, [&] { return finish; });
  }

  // A packet of weights is loaded once, and multiplied by the input of each token.
  template <Stage S, class Finish> static DEVICE void products_by_warp(const Context &c, int layer, Finish finish) {
    const auto job = Self::template job<S>(c, layer);
    constexpr int matrices = decltype(job)::matrices, width = decltype(job)::Row::template width<Self::load_bytes>;
    constexpr int stride = 32 * width;
    const float *x[tokens];
    UNROLL
    for (int n = 0; n < tokens; ++n) x[n] = Self::template activations<input_of(S)>(of(c, n), layer);
    for (int row = job.part * block_warps + warp(); row < job.rows; row += job.parts * block_warps) {
      float sums[tokens][matrices] = {};
      UNROLL
      for (int m = 0; m < matrices; ++m) {
        const auto weights = job.row(m, row);
        ROLLED // four packets at once: more would leave no registers for the inputs
        for (int first = lane() * width; first < job.K; first += 4 * stride) {
          decltype(weights.template load<Self::load_bytes, Self::load_l1>(0)) packet[4];
          UNROLL
          for (int p = 0; p < 4; ++p)
            if (first + p * stride < job.K)
              packet[p] = weights.template load<Self::load_bytes, Self::load_l1>(first + p * stride);
          UNROLL
          for (int i = 0; i < 4 * tokens; ++i) {
            const int p = i / tokens, n = i % tokens, at = first + p * stride;
            if (at < job.K) sums[n][m] = add_products(packet[p], load_floats<width>(x[n] + at).value, sums[n][m]);
          }
        }
        UNROLL
        for (int n = 0; n < tokens; ++n) sums[n][m] = warp_sum(sums[n][m]);
      }
      if (lane() != 0) continue;
      UNROLL
      for (int n = 0; n < tokens; ++n) finish(n, row, sums[n]);
    }
  }

  // Keeps choices up to and with the first that differs from its draft. Ids of the prompt count as right drafts.
  static DEVICE void argmax(const Context &c) {
    if (blockIdx.x != 0) return;
    const unsigned *ids = c.state + state_at::ids, given = c.state[state_at::prompt_length];
    unsigned accepted = 0, token = 0;
    bool agree = true;
    for (unsigned n = 0; n < tokens; ++n) {
      const unsigned best = choice<Self>(of(c, n)).index, behind = c.position + n + 1;
      next();
      if (threadIdx.x != 0 || !agree) continue;
      accepted = n, token = best;
      agree = behind < given || ids[behind] == best;
    }
    if (threadIdx.x == 0) {
      c.state[state_at::accepted] = accepted;
      Self::advance(of(c, accepted), token);
    }
    block_barrier();
    draft<Self>(c, tokens - 1);
  }
};
