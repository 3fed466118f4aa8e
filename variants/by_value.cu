// Idea        flag-in-data in place of grid barriers: a word holds a sentinel until it is written, and readers poll it
// Hypothesis  a barrier costs an arrival, a poll that sees the last arrival, and then a load of the result; a polled
//             value costs one round trip, no atomic, and no fence that waits for all stores of a block
// Overrides   exchange, publish, receive, stream, activations, advance
// Run         python -m experiments variant=by_value
#include "common/kernel/decode.cuh"
#include "common/kernel/mail.cuh"

template <class Base> struct ByValue : Base {
  using Self = typename Base::Self;

  // Stages whose results are exchanged by value. The others keep the exchange of the stack below, which gives the
  // barriers between two steps that the mail relies on.
  static constexpr bool mailed(Stage s) {
    // equivalent: || -> &&: a stage that is not mailed is followed by the grid barrier of the stack below
    return s == Stage::qkv || s == Stage::attention || s == Stage::o_proj || s == Stage::gate_up || s == Stage::down;
  }
  // Longest of these results that a matrix takes as its input.
  static constexpr int longest = model::query > model::intermediate ? model::query : model::intermediate;

  struct Shared : Base::Shared {
    alignas(16) float arrived[Self::whole_inputs ? longest : 4];
  };

  template <Stage S> static DEVICE void exchange(const Context &c, int layer) {
    if constexpr (!mailed(S)) Base::template exchange<S>(c, layer);
  }

  template <Stage S> static DEVICE auto publish(const Context &c, int layer, int first = 0) {
    const auto store = Base::template publish<S>(c, layer, first);
    return [=, &c](int i, float value) {
      if constexpr (mailed(S)) send<S>(c, layer, first + i, value);
      store(i, value); // the tap, for which no block waits
    };
  }

  template <Stage S, int N, int Run = N, int Apart = N>
  static DEVICE Floats<N> receive(const Context &c, int layer, int i) {
    if constexpr (mailed(S)) {
      Packet<16> packet[N / 4];
      arrive_by_value<S, Run, Apart>(c, layer, i, i + N / Run * Apart, packet);
      Self::template received<S>(c, layer);
      Floats<N> f;
      UNROLL
      for (int j = 0; j < N; ++j) f.value[j] = __uint_as_float(packet[j / 4].word[j % 4]);
      return f;
    } else {
      return Base::template receive<S, N, Run, Apart>(c, layer, i);
    }
  }

  // The first layer reads the embedding, which a barrier follows.
  template <Stage S, int N, int Run = N, int Apart = N> static DEVICE auto stream(const Context &c, int layer) {
    return [=, &c](int i) {
      constexpr Stage from = S == Stage::post_norm ? Stage::o_proj : Stage::down;
      return S == Stage::input_norm && layer == 0
                 ? load_floats<N, Run, Apart>(residual(c, 0) + i)
                 : Self::template receive<from, N, Run, Apart>(c, S == Stage::post_norm ? layer : layer - 1, i);
    };
  }

  // Each thread polls its share, all packets at once. No thread still reads the vector before this one: a norm lies
  // between, in which all threads of the block meet.
  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) {
    if constexpr (!mailed(S)) {
      return Base::template activations<S>(c, layer);
    } else {
      constexpr int size = Tap<S>::size, stride = 4 * block_threads, all = (size + stride - 1) / stride;
      // equivalent: branch forced or initial value changed: packets beyond the last are neither polled nor stored
      constexpr int packets = all < 4 ? all : 4; // under way at once
      float *to = shared<Self>(c).arrived;
      for (int first = 4 * int(threadIdx.x); first < size; first += packets * stride) {
        Packet<16> packet[packets];
        arrive_by_value<S, 4, stride>(c, layer, first, size, packet);
        UNROLL
        for (int p = 0; p < packets; ++p)
          if (first + p * stride < size) store_packet(to + first + p * stride, packet[p]);
      }
      Self::template received<S>(c, layer);
      block_barrier();
      return to;
    }
  }

  static DEVICE void advance(const Context &c, unsigned token) {
    Base::advance(c, token);
    c.state[state_at::turn] = c.turn + 1;
  }
};
