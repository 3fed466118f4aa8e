// One decode step: the order of the stages, and what each stage does unless a variant overrides it.
//
// The order is defined in common/model/stages.py. Layout writes it in front of this text as three macros, which apply
// another one to each stage's name: FIRST_STAGES run once before the layers, LAYER_STAGES in every layer, LAST_STAGES
// once after the layers. Every stage has a function of its name, here or in variants/baseline.cu.
//
// `Derived` is the finished stack. Calls of what a variant may override go through `Self::`, to the outermost override,
// whichever mixin makes them. All functions are static and inlined: composing a stack adds no instruction.
#pragma once
#include "attention.cuh"
#include "barrier.cuh"
#include "lm_head.cuh"
#include "matvec.cuh"
#include "norm.cuh"
#include "rope.cuh"

template <class Derived> struct Decode {
  using Self = Derived;

  struct Shared {
    float sums[block_warps];
    Best best[block_warps];
    SoftmaxPartials softmax;
  };

  // Tokens of a step, at neighbouring positions, and the context of token n; see variants/verify.cu.
  static constexpr int tokens = 1;
  static DEVICE const Context &of(const Context &c, int) { return c; }

  // Called once per launch by all threads of the grid, loader warps included, before anything else.
  static DEVICE void enter(const Context &) {}

  // The work of the loader warps while the other threads decode. They take no part in block barriers.
  static DEVICE void load(const Context &, int) {}

  // Called by all threads of the grid, once per launch. A launch decodes one token unless a variant overrides this.
  static DEVICE void decode(const Context &c, int) { Self::step(c); }

#define ONCE(name) Self::template stage<Stage::name>(c, 0);
#define PER_LAYER(name) Self::template stage<Stage::name>(c, layer);
  static DEVICE void step(const Context &c) {
    FIRST_STAGES(ONCE);
    for (int layer = 0; layer < model::layers; ++layer) {
      LAYER_STAGES(PER_LAYER);
    }
    LAST_STAGES(ONCE);
  }
#undef ONCE
#undef PER_LAYER

  // One stage and what follows it: a grid barrier, unless a variant overrides `after`.
  template <Stage S> static DEVICE void stage(const Context &c, int layer) {
    Self::template perform<S>(c, layer);
    Self::template after<S>(c, layer);
  }

#define ONCE(name)                                                                                                     \
  if constexpr (S == Stage::name) Self::name(c);
#define PER_LAYER(name)                                                                                                \
  if constexpr (S == Stage::name) Self::name(c, layer);
  template <Stage S> static DEVICE void perform(const Context &c, int layer) {
    FIRST_STAGES(ONCE);
    LAYER_STAGES(PER_LAYER);
    LAST_STAGES(ONCE);
  }
#undef ONCE
#undef PER_LAYER

  // True if a block reads the whole input vector of a matrix, through `activations`.
  static constexpr bool whole_inputs = true;

  // The result of stage S as the next stage reads it. Called by all threads of a block.
  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) { return tap<S>(c, layer); }

  // A function (i, value) that stores element first + i of the result of stage S for the stages that read it.
  template <Stage S> static DEVICE auto publish(const Context &c, int layer, int first = 0) {
    float *out = tap<S>(c, layer) + first;
    return [=](int i, float value) { out[i] = value; };
  }

  // `N` elements of the result of stage S from element i on, in the registers of one thread; in runs, as load_floats.
  template <Stage S, int N, int Run = N, int Apart = N>
  static DEVICE Floats<N> receive(const Context &c, int layer, int i) {
    return load_floats<N, Run, Apart>(tap<S>(c, layer) + i);
  }

  // A function (i) that gives `N` elements, from i on, of the residual stream that norm S normalizes.
  template <Stage S, int N, int Run = N, int Apart = N> static DEVICE auto stream(const Context &c, int layer) {
    const float *x = S == Stage::post_norm ? tap<Stage::o_proj>(c, layer) : residual(c, layer);
    return [=](int i) { return load_floats<N, Run, Apart>(x + i); };
  }

  // The matrices of stage S and their rows, which depend on neither block, token nor position.
  template <Stage S> static DEVICE auto job(const Context &c, int layer) {
    if constexpr (S == Stage::qkv)
      return MatVec<LayerFormat, model::hidden>{{{layer_weights(c, weight_at::qkv, layer)}},
                                                model::query + 2 * model::kv};
    else if constexpr (S == Stage::o_proj)
      return MatVec<LayerFormat, model::query>{{{layer_weights(c, weight_at::o, layer)}}, model::hidden};
    else if constexpr (S == Stage::gate_up)
      return MatVec<LayerFormat, model::hidden, 2>{
          {{layer_weights(c, weight_at::gate, layer)}, {layer_weights(c, weight_at::up, layer)}}, model::intermediate};
    else if constexpr (S == Stage::down)
      return MatVec<LayerFormat, model::intermediate>{{{layer_weights(c, weight_at::down, layer)}}, model::hidden};
    else
      return MatVec<HeadFormat, model::hidden>{{{c.weights + weight_at::lm_head}}, model::vocab};
  }

  // A function (row, sums) that publishes the result of a row of stage S; `sums` has one for each matrix. The same
  // thread finishes a row of o_proj and that row of down, so it may read back what it stored.
  template <Stage S> static DEVICE auto emit(const Context &c, int layer) {
    const auto publish = Self::template publish<S>(c, layer);
    if constexpr (S == Stage::o_proj || S == Stage::down) {
      const float *before = S == Stage::o_proj ? residual(c, layer) : tap<Stage::o_proj>(c, layer);
      return [=](int row, const auto &sums) { publish(row, before[row] + sums[0]); };
    } else if constexpr (S == Stage::gate_up) { // SwiGLU: silu(gate) * up
      return [=](int row, const auto &sums) { publish(row, __fdividef(sums[0], 1.0f + expf(-sums[0])) * sums[1]); };
    } else if constexpr (S == Stage::qkv && model::qkv_bias) {
      const Weight *bias = layer_weights(c, weight_at::qkv_bias, layer);
      return [=](int row, const auto &sums) { publish(row, sums[0] + load_weight(bias + row)); };
    } else {
      return [=](int row, const auto &sums) { publish(row, sums[0]); };
    }
  }

  static DEVICE void embed(const Context &c) {
    if (blockIdx.x == 0) {
      const Weight *row = c.weights + weight_at::embed + size_t(c.token) * model::hidden;
      for (int i = threadIdx.x; i < model::hidden; i += block_threads) {
        float &to = tap<Stage::embed>(c, 0)[i];
        to = load_weight(row + i);
      }
    }
    if (blockIdx.x == gridDim.x - 1)
      rope_angles(c.position, threadIdx.x, [&](int i, float value) { rope(c)[i] = value; });
  }

  // cos of all pairs of a head, then sin, at the token's position.
  static DEVICE const float *angles(const Context &c) { return rope(c); }

  static DEVICE void qkv(const Context &c, int layer) { Self::template multiply<Stage::qkv>(c, layer); }

  // True if a stage of its own normalizes heads, before any block attends.
  static constexpr bool heads_apart = true;

  // A warp per head.
  static DEVICE void qk_norm_rope(const Context &c, int layer) {
    for (int head = int(blockIdx.x) * block_warps + warp(); head < model::heads + 2 * model::kv_heads;
         head += int(gridDim.x) * block_warps)
      Self::norm_rope_store(c, layer, head);
  }

  // Normalizes, rotates and stores a query or key head; a value head is only rounded into the cache. Heads are numbered
  // as the qkv rows: queries, keys, values. Called by one warp.
  static DEVICE void norm_rope_store(const Context &c, int layer, int head) {
    const float *x = tap<Stage::qkv>(c, layer) + head * model::head_dim;
    const auto pairs = [=](int i) { return load_floats<8, 4, rope_pairs>(x + i); };
    const size_t row = size_t(c.position) * entry_units;
    float *room = shared<Self>(c).softmax.value[warp()]; // attention, which follows, overwrites it
    if (head < model::heads) {
      float *out = tap<Stage::qk_norm_rope>(c, layer) + head * model::head_dim;
      head_norm_rope(pairs, layer_weights(c, weight_at::q_norm, layer), Self::angles(c),
                     [&](int i, float value) { out[i] = value; });
    } else if (head < model::heads + model::kv_heads) {
      EntryUnit *out = keys(c, layer, head - model::heads) + row;
      const auto make = [&](auto put) {
        head_norm_rope(pairs, layer_weights(c, weight_at::k_norm, layer), Self::angles(c), put);
      };
      store_entry(room, make, [&](int i, EntryUnit unit) { out[i] = unit; });
    } else {
      EntryUnit *out = values(c, layer, head - model::heads - model::kv_heads) + row;
      const auto make = [&](auto put) {
        for (int i = lane(); i < model::head_dim; i += 32) put(i, x[i]);
      };
      store_entry(room, make, [&](int i, EntryUnit unit) { out[i] = unit; });
    }
  }

  static DEVICE void o_proj(const Context &c, int layer) { Self::template multiply<Stage::o_proj>(c, layer); }

  static DEVICE void gate_up(const Context &c, int layer) { Self::template multiply<Stage::gate_up>(c, layer); }

  static DEVICE void down(const Context &c, int layer) { Self::template multiply<Stage::down>(c, layer); }

  static DEVICE void lm_head(const Context &c) { logits<Self>(c); }

  static DEVICE void argmax(const Context &c) {
    if (blockIdx.x == 0) choose<Self>(c);
  }

  // Makes `token` the next input and ends the step. Called by one thread of the grid, when no other block reads the
  // position or the token of this step any more.
  static DEVICE void advance(const Context &c, unsigned token) { store_token(c, token); }

  template <Stage S> static DEVICE void multiply(const Context &c, int layer) {
    const auto job = with_input<Self, S>(c, layer);
    Self::matvec(c, job, Self::template emit<S>(c, layer));
  }
};

// The context of the next step: the position and the token that the last argmax left in the state.
DEVICE Context begin(const Buffers &b, void *shared) {
  const int position = b.state[state_at::position];
  return {b, shared, position, int(b.state[state_at::ids + position]), b.state[state_at::turn]};
}

// The body of the kernel that decodes. `steps` is 1 unless a variant runs the loop over tokens on the device.
template <class Kernel> DEVICE void run(const Buffers &b, void *shared, int steps) {
  const Context c = begin(b, shared);
  Kernel::enter(c);
  // equivalent: bound off by one: without a loader warp no thread has a number beyond the last
  if constexpr (loader_warps > 0)
    if (int(threadIdx.x) >= block_threads) return Kernel::load(c, steps);
  Kernel::decode(c, steps);
}

// The body of a kernel that runs one stage of one layer.
template <class Kernel, Stage S> DEVICE void run_stage(const Buffers &b, void *shared, int layer) {
  if (S == Stage::argmax && blockIdx.x != 0)
    return; // block 0 chooses the token and advances the position, which the other blocks would read in begin()
  Kernel::template perform<S>(begin(b, shared), layer);
}
