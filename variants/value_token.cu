// Idea        argmax by value: every block publishes its best candidate, makes the next angles while it waits, finds
//             the best of all for itself and loads its embedding; the loop over tokens runs without a grid barrier
// Hypothesis  one exchange by value per token replaces the barriers after the embedding, the final norm and the head,
//             and the one between two tokens; every block computes the final norm
// Overrides   decode, embed, exchange, angles, stream, emit, normalize, activations, argmax
// Run         python -m experiments variant=value_token steps=16
#include "common/kernel/choice.cuh"
#include "common/kernel/decode.cuh"

template <class Base> struct ValueToken : Base {
  using Self = typename Base::Self;

  struct Shared : Base::Shared {
    alignas(16) float final_normalized[model::hidden], angles[model::head_dim];
    Best candidate[block_warps];
    unsigned token; // chosen for the next step
  };

  // No barrier separates two steps: the exchange of candidates orders them (choice.cuh). Stages exchange results by
  // value, and the thread that stored an element of the embedding reads it as the residual.
  static DEVICE void decode(const Context &first, int steps) {
    Context c = first;
    make_angles(c, c.position);
    block_barrier();
    for (int done = 0; done < steps; ++done) {
      Self::step(c);
      const unsigned next = ++c.position;
      c.token = next < c.state[state_at::prompt_length] ? c.state[state_at::ids + next] : shared<Self>(c).token;
      ++c.turn;
    }
  }

  template <Stage S> static DEVICE void exchange(const Context &c, int layer) {
    if constexpr (S == Stage::final_norm)
      block_barrier();
    else if constexpr (S != Stage::embed && S != Stage::lm_head)
      Base::template exchange<S>(c, layer);
  }

  // `stream` reads the token's row of weights. One block stores its angles, for the validator.
  static DEVICE void embed(const Context &c) {
    if (blockIdx.x != gridDim.x - 1) return;
    for (int i = threadIdx.x; i < model::head_dim; i += block_threads) {
      float &to = rope(c)[i]; // not executed: the device computes this address with the store below
      to = angles(c)[i];
    }
  }

  // Every block makes its own angles, in its last warps: the first ones exchange candidates at the same time.
  static DEVICE void make_angles(const Context &c, int position) {
    float *to = shared<Self>(c).angles;
    rope_angles(position, block_threads - 1 - threadIdx.x, [=](int i, float value) { to[i] = value; });
  }
  static DEVICE const float *angles(const Context &c) { return shared<Self>(c).angles; }

  static DEVICE const Weight *embedding(const Context &c) {
    return c.weights + weight_at::embed + size_t(c.token) * model::hidden;
  }

  template <Stage S, int N, int Run = N, int Apart = N> static DEVICE auto stream(const Context &c, int layer) {
    const auto rest = Base::template stream<S, N, Run, Apart>(c, layer);
    const Weight *row = embedding(c);
    return [=](int i) {
      if (S != Stage::input_norm || layer > 0) return rest(i);
      constexpr int most = Run % 8 == 0 ? 8 : 4; // elements of a load; columns take several loads
      Floats<N> x;
      UNROLL
      for (int first = 0; first < N; first += most) {
        const auto packet = load_weights<2 * most>(row + i + in_runs<Run, Apart>(first));
        UNROLL
        for (int k = 0; k < most; k += 2) {
          x.value[first + k] = bf16_low(packet.word[k / 2]);
          x.value[first + k + 1] = bf16_high(packet.word[k / 2]);
        }
      }
      return x;
    };
  }

  // The thread that finishes a row of o_proj stores that element of the embedding, which it then reads as the residual.
  template <Stage S> static DEVICE auto emit(const Context &c, int layer) {
    const auto finish = Base::template emit<S>(c, layer);
    if constexpr (S == Stage::o_proj) {
      const Weight *from = embedding(c);
      float *to = tap<Stage::embed>(c, 0);
      return [=](int row, const auto &sums) {
        if (layer == 0) {
          float &element = to[row];
          element = load_weight(from + row);
        }
        finish(row, sums);
      };
    } else {
      return finish;
    }
  }

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

  // lm_head left the block's candidate in best[0], by thread 0, after a block barrier that follows the last row.
  static DEVICE void argmax(const Context &c) {
    auto &s = shared<Self>(c);
    if (threadIdx.x == 0) send_candidate(c, s.best[0]);
    make_angles(c, c.position + 1); // while the candidates are under way
    const Best own = arrive_candidates(c);
    Self::template received<Stage::lm_head>(c, 0);
    const Best best = block_best(own, s.candidate);
    if (threadIdx.x == 0) {
      s.token = best.index;
      if (blockIdx.x == 0) Self::advance(c, best.index);
    }
    block_barrier();
  }
};
