// The arguments of every stage, and the addresses of the tensors. common/model/layout.py and common/compile/source.py
// write constants in front of this text: Stage and the lists of stages; Tap; namespaces model, weight_at, scratch_at,
// state_at; block_threads and loader_warps.
#pragma once
#include "asm.cuh"
#include "entry.cuh"

constexpr int block_warps = block_threads / 32;

// The arguments of a launch. `waits` has `wait_words` words per block. A block writes its words only when it gives up
// waiting (barrier.cuh).
struct Buffers {
  const Weight *weights;
  Cache *cache;
  float *scratch;
  unsigned *state;
  unsigned *waits;
};

// The arguments of one step, the same in every thread of a block.
struct Context : Buffers {
  void *shared;
  int position; // where the token of this step is
  int token;
  unsigned turn;  // steps since the reset; 0 unless a variant counts them
  int number = 0; // index of the token in a step of several
};

// The block's shared memory: the members that the stages need, and those that each variant of the stack adds.
template <class Self> DEVICE typename Self::Shared &shared(const Context &c) {
  static_assert(sizeof(typename Self::Shared) <= 227 << 10, "no GPU has the shared memory that a block of the stack "
                                                            "needs, more than 227 KB: lower slots, kb, stages, tile or "
                                                            "threads, or leave a variant out");
  return *static_cast<typename Self::Shared *>(c.shared);
}

DEVICE const Weight *layer_weights(const Context &c, size_t at, int layer) {
  return c.weights + at + layer * weight_at::layer_stride;
}

// The result of a stage: fp32, a tensor of its own in every layer, so nothing is overwritten within a step.
template <Stage S> DEVICE float *tap(const Context &c, int layer) {
  return c.scratch + Tap<S>::at + layer * Tap<S>::layer_stride;
}

// The residual stream at the start of a layer: the tap of the layer before, or the embedding.
DEVICE const float *residual(const Context &c, int layer) {
  // not executed: the short way of a division has this line in NVRTC's PTX
  return layer == 0 ? tap<Stage::embed>(c, 0) : tap<Stage::down>(c, layer - 1);
}
