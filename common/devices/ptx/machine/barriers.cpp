// Barriers of a block: barrier.sync, arrive and red, `aligned` (bar.sync and its like) or not.
//
// A warp arrives when all its lanes that have not ended are there. Lanes must execute an aligned barrier together, but
// for those that have ended; going around the barrier to what comes after it is a fault (beyond.cpp).
#include "places.hpp"

namespace ptx {
namespace {

enum Reduction : int64_t { no_votes, how_many, all_yes, any_yes }; // In::imm; c: the predicate, d: the result

// Completes the barrier: the waiting lanes go on.
void complete(Block &block, Barrier &barrier) {
  if (block.grid->races) block.grid->races->barrier(barrier);
  const std::vector<Barrier::Waiting> waiting = std::move(barrier.waiting);
  const uint32_t yes = barrier.yes, voters = barrier.voters;
  barrier = {};
  ++block.grid->progress;
  for (const auto &[w, mask, in] : waiting) {
    for (Group &g : w->groups)
      if (g.wait == Wait::barrier && (g.mask & mask)) g.wait = Wait::ready;
    block.grid->ready(*w);
    if (in->imm == how_many) {
      uint32_t *d = w->reg<uint32_t>(in->d);
      LANES d[i] = on(mask, i) ? yes : d[i];
    } else if (in->imm != no_votes) {
      uint32_t &d = *w->reg<uint32_t>(in->d);
      d = (in->imm == all_yes ? yes == voters : yes > 0) ? d | mask : d & ~mask;
    }
  }
}

uint32_t living(const Block &block) {
  return warp_size * uint32_t(std::ranges::count_if(block.warps, [](const Warp &w) { return w.live != 0; }));
}

// Lanes of a warp that are at the barrier.
uint32_t here(const Barrier &barrier, const Warp &w) {
  uint32_t lanes = 0;
  for (const Barrier::Waiting &one : barrier.waiting)
    if (one.warp == &w) lanes |= one.mask;
  return lanes;
}

void complete_if_all(Block &block, Barrier &barrier) {
  if (barrier.arrived && barrier.arrived == (barrier.expected ? barrier.expected : living(block)))
    complete(block, barrier);
}

// a, b: b is the number of threads; 0 in the file means the whole block.
template <bool Waits, bool Aligned> void bar(Warp &w, const In *in) {
  if (Aligned && !gathered(w, in)) return;
  if (Aligned && gone_around(w, in))
    return fault(w, in, "only some lanes of the warp come to this barrier, which is for all of them");
  Block &block = *w.block;
  const uint32_t id = first<uint32_t>(w, in->a), threads = in->b ? first<uint32_t>(w, in->b) : living(block);
  for (const int lane : Each{w.mask})
    if (w.reg<uint32_t>(in->a)[lane] != id || (in->b && w.reg<uint32_t>(in->b)[lane] != threads))
      return fault(w, in, "lanes of a warp name different barriers", 1u << lane);
  if (id >= named_barriers) return fault(w, in, "barrier " + std::to_string(id) + " of 0 to 15");
  if (threads % warp_size || threads == 0)
    return fault(w, in, "a barrier of " + std::to_string(threads) + " threads, which is no multiple of a warp");
  Barrier &barrier = block.barriers[id];
  if (barrier.first && barrier.expected != (in->b ? threads : 0))
    return fault(w, in,
                 "barrier " + std::to_string(id) + " of " + std::to_string(threads) + " threads; " + "{pc " +
                     std::to_string(barrier.first - w.program->code.data()) + "} has another number");
  if (!barrier.first) barrier.expected = in->b ? threads : 0, barrier.first = in;
  if (in->imm != no_votes) {
    barrier.yes += uint32_t(std::popcount(*w.reg<uint32_t>(in->c) & w.mask));
    barrier.voters += uint32_t(std::popcount(w.mask));
  }
  const uint32_t came = w.mask;
  if (Waits) {
    barrier.waiting.push_back({&w, came, in});
    park(w, in + 1, Wait::barrier);
  } else if (w.grid->races) {
    w.grid->races->arrive(w, barrier);
  }
  if ((Waits ? here(barrier, w) : came) == w.live) barrier.arrived += warp_size;
  if (barrier.arrived > threads)
    return fault(w, in, "more warps come to barrier " + std::to_string(id) + " than it takes");
  complete_if_all(block, barrier);
  if (!Waits) GO_ON;
}

} // namespace

void ended(Warp &w) {
  if (!w.live) --w.grid->alive, ++w.grid->progress;
  for (Barrier &barrier : w.block->barriers) {
    if (w.live && here(barrier, w) == w.live) barrier.arrived += warp_size; // only the ended lanes were missing
    complete_if_all(*w.block, barrier);
  }
  if (living(*w.block)) return;
  for (const auto &one : w.block->mbarriers)
    if (one && !waited_for_copies(*one)) return;
}

void add_barriers(Ops &ops) {
  put(ops, "bar.sync", bar<true, true>), put(ops, "bar.arrive", bar<false, true>);
  put(ops, "barrier.sync", bar<true, false>);
}

} // namespace ptx
