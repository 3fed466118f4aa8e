// What every stage is given, and where the tensors lie. The constants (namespaces model, weight_at, scratch_at,
// state_at; block_threads; Stage) are written in front of this text from common/layout.py.
#pragma once
#include "port.cuh"

constexpr int block_warps = block_threads / 32;

// What a launch is given. `waits` has a line for each block, written only by one that gives up waiting (barrier.cuh).
struct Buffers {
  const bf16 *weights;
  bf16 *cache;
  float *scratch;
  unsigned *state;
  unsigned *waits;
};

struct Context : Buffers {
  void *shared;
  int position; // of the token this step decodes
  int token;
};

// The block's shared memory: what the stages need, plus what each variant of the stack adds.
template <class Self> DEVICE typename Self::Shared &shared(const Context &c) {
  static_assert(sizeof(typename Self::Shared) <= 48 << 10, "the stack needs more than 48 KB of shared memory a block: "
                                                           "lower stages, tile or threads, or leave a variant out");
  return *static_cast<typename Self::Shared *>(c.shared);
}

DEVICE const bf16 *layer_weights(const Context &c, size_t at, int layer) {
  return c.weights + at + layer * weight_at::layer_stride;
}

DEVICE float *layer_scratch(const Context &c, size_t at, int layer) {
  return c.scratch + at + layer * scratch_at::layer_stride;
}

// Where a stage leaves its result: fp32, one tensor per layer, so nothing is overwritten within a step.
template <Stage S> DEVICE float *tap(const Context &c, int layer) {
  if constexpr (S == Stage::embed) return c.scratch + scratch_at::embed;
  if constexpr (S == Stage::input_norm) return layer_scratch(c, scratch_at::input_norm, layer);
  if constexpr (S == Stage::qkv) return layer_scratch(c, scratch_at::qkv, layer);
  if constexpr (S == Stage::qk_norm_rope) return layer_scratch(c, scratch_at::qk_norm_rope, layer);
  if constexpr (S == Stage::attention) return layer_scratch(c, scratch_at::attention, layer);
  if constexpr (S == Stage::o_proj) return layer_scratch(c, scratch_at::o_proj, layer);
  if constexpr (S == Stage::post_norm) return layer_scratch(c, scratch_at::post_norm, layer);
  if constexpr (S == Stage::gate_up) return layer_scratch(c, scratch_at::gate_up, layer);
  if constexpr (S == Stage::down) return layer_scratch(c, scratch_at::down, layer);
  if constexpr (S == Stage::final_norm) return c.scratch + scratch_at::final_norm;
  if constexpr (S == Stage::lm_head) return c.scratch + scratch_at::lm_head;
}

// The residual stream as it enters a layer: the layer before left it, or the embedding.
DEVICE const float *residual(const Context &c, int layer) {
  return layer == 0 ? tap<Stage::embed>(c, 0) : tap<Stage::down>(c, layer - 1);
}

// Keys and values of one KV head: [position][head_dim].
DEVICE bf16 *keys(const Context &c, int layer, int kv_head) {
  return c.cache + (size_t(layer) * 2 * model::kv_heads + kv_head) * model::positions * model::head_dim;
}
DEVICE bf16 *values(const Context &c, int layer, int kv_head) { return keys(c, layer, model::kv_heads + kv_head); }
