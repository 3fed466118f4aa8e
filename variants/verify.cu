// Idea        several tokens in a step: the next one, and drafts of those behind it, each at its own position; the
//             choices are kept up to the first that is not the draft behind it
// Hypothesis  a step for k tokens reads every weight once and passes as many barriers as a step for one, so a token
//             costs as much less as drafts are accepted, until k products of a row take longer than its bytes
// Overrides   embed, normalize, qk_norm_rope, attention, attention_blocks, multiply, lm_head, argmax
// Run         python -m experiments variant=verify tokens=4
#include "common/kernel/decode.cuh"
#include "common/kernel/drafts.cuh"

template <class Base> struct Verify : Base {
  using Self = typename Base::Self;
  static constexpr int tokens = knob::verify::tokens;

  // What the stack below keeps in shared memory, for each token, one behind the other.
  struct Shared : Base::Shared {
    typename Base::Shared others[tokens - 1];
  };

  // The step of token j: its position, and its part of the scratch and of the shared memory.
  static DEVICE Context of(const Context &c, int j) {
    Context own = c;
    own.scratch += j * scratch_at::step_size;
    own.position += j;
    own.shared = static_cast<typename Base::Shared *>(c.shared) + j;
    return own;
  }

  // A token without a draft is any, since no choice agrees with `no_draft`.
  static DEVICE void embed(const Context &c) {
    for (int j = 0; j < tokens; ++j) {
      Context own = of(c, j);
      const int id = c.state[state_at::ids + own.position];
      own.token = id < 0 ? 0 : id;
      Base::embed(own);
    }
  }

  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    for (int j = 0; j < tokens; ++j) Base::template normalize<S>(of(c, j), layer);
  }

  static DEVICE void qk_norm_rope(const Context &c, int layer) {
    constexpr int heads = model::heads + 2 * model::kv_heads;
    for (int i = port::block() * block_warps + warp(); i < tokens * heads; i += port::blocks() * block_warps)
      Self::norm_rope_store(of(c, i / heads), layer, i % heads);
  }

  static DEVICE int attention_blocks(const Context &) { return tokens * model::heads; }

  // The entries of the tokens before it are in the cache, since a grid barrier follows qk_norm_rope.
  static DEVICE void attention(const Context &c, int layer) {
    for (int i = port::block(); i < tokens * model::heads; i += port::blocks())
      Self::attend_head(of(c, i / model::heads), layer, i % model::heads);
  }

  template <Stage S> static DEVICE void multiply(const Context &c, int layer) {
    products<S>(c, layer,
                [&](int j, int row, const auto &sums) { Self::template emit<S>(of(c, j), layer)(row, sums); });
  }

  static DEVICE void lm_head(const Context &c) {
    Best best[tokens];
    UNROLL
    for (int j = 0; j < tokens; ++j) best[j] = {negative_infinity(), 0};
    products<Stage::lm_head>(c, 0, [&](int j, int row, const auto &sums) {
      Self::template emit<Stage::lm_head>(of(c, j), 0)(row, sums);
      best[j] = better(best[j], {sums[0], row});
    });
    UNROLL
    for (int j = 0; j < tokens; ++j) store_best<Self>(of(c, j), best[j]);
  }

  // The products of stage S: `finish(j, row, sums)` is called for token j in lane 0 of the row's warp. A packet of
  // weights is loaded once, and multiplied by the input of each token.
  template <Stage S, class Finish> static DEVICE void products(const Context &c, int layer, Finish finish) {
    const auto job = Self::template job<S>(c, layer);
    constexpr int matrices = decltype(job)::matrices;
    const float *x[tokens];
    UNROLL
    for (int j = 0; j < tokens; ++j) x[j] = Self::template activations<input_of(S)>(of(c, j), layer);
    for (int row = job.part * block_warps + warp(); row < job.rows; row += job.parts * block_warps) {
      float sums[tokens][matrices] = {};
      UNROLL
      for (int m = 0; m < matrices; ++m) {
        const auto weights = job.row(m, row);
        constexpr int width = decltype(job)::Row::template width<Self::load_bytes>;
        UNROLL
        for (int i = lane() * width; i < job.K; i += 32 * width) {
          const auto packet = weights.template load<Self::load_bytes, Self::load_l1>(i);
          UNROLL
          for (int j = 0; j < tokens; ++j)
            sums[j][m] = add_products(packet, load_floats<width>(x[j] + i).value, sums[j][m]);
        }
        UNROLL
        for (int j = 0; j < tokens; ++j) sums[j][m] = warp_sum(sums[j][m]);
      }
      if (lane() != 0) continue;
      UNROLL
      for (int j = 0; j < tokens; ++j) finish(j, row, sums[j]);
    }
  }

  // Keeps the choices up to the first that is not the draft behind it, by thread 0. Ids of the prompt are kept anyway.
  static DEVICE void argmax(const Context &c) {
    if (port::block() != 0) return;
    const unsigned *ids = c.state + state_at::ids, given = c.state[state_at::prompt_length];
    unsigned accepted = 0, token = 0;
    bool agree = true;
    for (unsigned j = 0; j < tokens; ++j) {
      const unsigned best = choice<Self>(of(c, j)).index, next = c.position + j + 1;
      if (port::thread() != 0 || !agree) continue;
      accepted = j, token = best;
      agree = next < given || ids[next] == best;
    }
    if (port::thread() == 0) {
      c.state[state_at::accepted] = accepted;
      Self::advance(of(c, accepted), token);
    }
    port::block_barrier();
    draft<Self>(c, tokens - 1);
  }
};
