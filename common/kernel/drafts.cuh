// Drafts by prompt lookup (Saxena 2023): the ids that followed an earlier occurrence of the last few.
#pragma once
#include "reduce.cuh"

constexpr int longest_match = 3; // ids
constexpr unsigned no_draft = 0xffffffffu;

// Writes drafts after the known ids, up to `count` positions after the last choice. The longest earlier match of the
// last ids wins, at most `longest_match` ids, and the most recent one on ties; copying may run into the drafts
// themselves. Called by all threads of one block, after a block barrier that follows the choice.
template <class Self> DEVICE void draft(const Context &c, int count) {
  unsigned *ids = c.state + state_at::ids;
  const int chosen = c.state[state_at::position], given = c.state[state_at::prompt_length];
  const int last = given > chosen ? given - 1 : chosen, end = chosen + count;
  // equivalent: 0 -> (-1): where nothing matches there is no draft, wherever it would stand
  Best best{0, 0}; // ids that match, and how far back the last of them stands
  for (int back = 1 + int(threadIdx.x); back <= last; back += block_threads) {
    int match = 0;
    while (match < longest_match && match + back <= last && ids[last - match] == ids[last - match - back]) ++match;
    best = better(best, {float(match), back});
  }
  best = block_best(best, shared<Self>(c).best);
  if (threadIdx.x != 0) return;
  for (int i = last + 1; i <= end && i <= model::positions; ++i)
    ids[i] = best.value > 0 ? ids[i - best.index] : no_draft;
}
