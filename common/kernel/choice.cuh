// Argmax by value: every block publishes its best candidate, and finds the best of all for itself. A candidate is two
// words, value and index, which hold the sentinel `unwritten` until they are stored.
//
// It is also the barrier between two steps, because every block waits for every other, with a fence before it publishes
// and one after it has seen all: accesses of one step (cache entries, mail made unwritten, reads of words that are
// written again) come before those of the next.
//
// There are places for four turns. Before a block publishes, it makes its place of the next turn unwritten. No block
// still reads that place, which is three turns old: this block has seen all candidates of the turn before, and a block
// publishes only after it has read those of earlier turns. Two places would be too few: a block without rows may still
// read the turn before.
#pragma once
#include "lm_head.cuh"
#include "mail.cuh"

// The candidates of one turn, two neighbouring blocks to a packet.
DEVICE float *candidates(const Context &c, unsigned turn) {
  return c.scratch + scratch_at::best + turn % 4 * 2 * max_blocks;
}

// Publishes this block's candidate, whose value is no NaN. Called by one thread, after a block barrier that follows
// everything the block has done in the step.
DEVICE void send_candidate(const Context &c, Best best) {
  // equivalent: 1 -> 2: there are four places, and no block is more than a turn late
  float *mine = candidates(c, c.turn) + 2 * int(blockIdx.x), *next = candidates(c, c.turn + 1) + 2 * int(blockIdx.x);
  store_relaxed(next, unwritten);
  store_relaxed(next + 1, unwritten);
  fence_acq_rel();
  store_relaxed(mine, __float_as_uint(best.value));
  store_relaxed(mine + 1, best.index);
}

// Waits for the candidates of all blocks; returns the best of this thread's share. Called by all threads of the block.
DEVICE Best arrive_candidates(const Context &c) {
  Best best{negative_infinity(), 0};
  for (int b = 2 * threadIdx.x; b < int(gridDim.x); b += 2 * block_threads) {
    const float *from = candidates(c, c.turn) + 2 * b;
    const int words = b + 1 < int(gridDim.x) ? 4 : 2;
    Packet<16> two;
    const auto arrived = [&] {
      two = load_relaxed(from);
      bool all = true;
      UNROLL
      // equivalent: < -> <= or 4 -> 5: there are no more than 4 words, and a fifth counts as there
      for (int i = 0; i < 4; ++i) all = all && (i >= words || two.word[i] != unwritten);
      return all;
    };
    spin_until(arrived, [&] { report_wait(c, waited_for<Stage::lm_head>, 0, b, 0); });
    fence_acq_rel();
    best = better(best, {__uint_as_float(two.word[0]), int(two.word[1])});
    if (words == 4) best = better(best, {__uint_as_float(two.word[2]), int(two.word[3])});
  }
  return best;
}
