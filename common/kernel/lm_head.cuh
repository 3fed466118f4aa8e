// Logits and greedy choice of the next token. Ties go to the lowest id.
#pragma once
#include "matvec.cuh"

// Where a block stores its best logit and the row's index for the argmax stage.
DEVICE float *partial(const Context &c, int block) { return c.scratch + scratch_at::partial + 2 * block; }

// Stores the best logit that the threads of this block have seen. Called by all of them.
template <class Self> DEVICE void store_best(const Context &c, Best best) {
  best = block_best(best, shared<Self>(c).best);
  if (threadIdx.x != 0) return;
  shared<Self>(c).best[0] = best; // for variants in which thread 0 publishes it
  *partial(c, blockIdx.x) = best.value;
  partial(c, blockIdx.x)[1] = __uint_as_float(best.index);
}

// The logits of all rows, and the best of each block. Called by all threads of the grid; a grid barrier separates it
// from choose().
template <class Self> DEVICE void logits(const Context &c) {
  Best best{negative_infinity(), 0};
  const auto job = with_input<Self, Stage::lm_head>(c, 0);
  const auto emit = Self::template emit<Stage::lm_head>(c, 0);
  Self::matvec(c, job, [&](int row, const auto &sums) {
    emit(row, sums);
    best = better(best, {sums[0], row});
  });
  store_best<Self>(c, best);
}

// Makes `token` the next input, unless the prompt gives the next id. Called by one thread of the grid.
DEVICE void store_token(const Context &c, unsigned token) {
  const unsigned next = c.position + 1;
  c.state[state_at::token] = token;
  if (next >= c.state[state_at::prompt_length]) c.state[state_at::ids + next] = token;
  c.state[state_at::position] = next;
}

// The best of all blocks' best, in thread 0. Called by all threads of one block.
template <class Self> DEVICE Best choice(const Context &c) {
  Best best{negative_infinity(), 0};
  for (int b = threadIdx.x; b < int(gridDim.x); b += block_threads) {
    const float value = *partial(c, b);
    best = better(best, {value, int(__float_as_uint(partial(c, b)[1]))});
  }
  return block_best(best, shared<Self>(c).best);
}

// Chooses the next token. Called by all threads of one block.
template <class Self> DEVICE void choose(const Context &c) {
  const Best best = choice<Self>(c);
  if (threadIdx.x == 0) Self::advance(c, best.index);
}
