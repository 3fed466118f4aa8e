// The race detector's vector clocks: the synchronization that hands them on.
#include "races.hpp"

#include "lanes.hpp"

#include <algorithm>

namespace ptx {

Seen Races::joined(const Seen &a, const Seen &b) {
  if (!b || a == b) return a;
  if (!a) return b;
  if (a == last_a_ && b == last_b_) return last_join_; // lanes of a warp mostly know the same
  const size_t both = std::min(a->size(), b->size());
  bool more = b->size() > a->size();
  for (size_t i = 0; i < both && !more; ++i) more = (*b)[i] > (*a)[i];
  Seen result = a;
  if (more) {
    auto made = std::make_shared<std::vector<uint32_t>>(a->size() >= b->size() ? *a : *b);
    const auto &other = a->size() >= b->size() ? *b : *a;
    uint32_t *to = made->data();
    const uint32_t *from = other.data();
    for (size_t i = 0; i < other.size(); ++i) to[i] = std::max(to[i], from[i]);
    result = made;
  }
  last_a_ = a, last_b_ = b, last_join_ = result;
  return result;
}

void Races::join(Known &to, const Known &from) {
  to.generic = joined(to.generic, from.generic);
  to.async = joined(to.async, from.async);
}

Known Races::handed_on(uint32_t t) {
  Thread &me = by_[t];
  auto made = me.seen.generic ? std::make_shared<std::vector<uint32_t>>(*me.seen.generic)
                              : std::make_shared<std::vector<uint32_t>>(count_);
  (*made)[t] = me.time++;
  return {made, me.seen.async};
}

// Join of the lanes' vectors, with their own times, and `before`; their times advance.
Known Races::together(Warp &w, uint32_t mask, Known before) {
  for (uint32_t left = mask; left; left &= left - 1) join(before, by_[id(w, __builtin_ctz(left))].seen);
  auto made = before.generic ? std::make_shared<std::vector<uint32_t>>(*before.generic)
                             : std::make_shared<std::vector<uint32_t>>(count_);
  for (uint32_t left = mask; left; left &= left - 1) {
    const uint32_t t = id(w, __builtin_ctz(left));
    (*made)[t] = by_[t].time++;
  }
  return {made, before.async};
}

void Races::arrive(Warp &w, const Barrier &barrier) {
  Known &all = arrived_[&barrier];
  all = together(w, w.live, all);
}

void Races::barrier(const Barrier &barrier) {
  const Known before = arrived_[&barrier];
  arrived_.erase(&barrier);
  std::vector<uint32_t> all(before.generic ? *before.generic : std::vector<uint32_t>(count_));
  Seen async = before.async;
  std::vector<const void *> taken;
  for (const auto &[w, mask, in] : barrier.waiting)
    for (uint32_t left = mask; left; left &= left - 1) {
      const uint32_t t = id(*w, __builtin_ctz(left));
      Thread &one = by_[t];
      async = joined(async, one.seen.async);
      const Seen &seen = one.seen.generic;
      if (!seen || std::find(taken.begin(), taken.end(), seen.get()) != taken.end()) continue;
      taken.push_back(seen.get());
      if (all.size() < seen->size()) all.resize(seen->size());
      for (size_t i = 0; i < seen->size(); ++i) all[i] = std::max(all[i], (*seen)[i]);
    }
  for (const auto &[w, mask, in] : barrier.waiting)
    for (uint32_t left = mask; left; left &= left - 1) {
      const uint32_t t = id(*w, __builtin_ctz(left));
      all[t] = by_[t].time++;
    }
  const Seen generic = std::make_shared<std::vector<uint32_t>>(std::move(all));
  for (const auto &[w, mask, in] : barrier.waiting)
    for (uint32_t left = mask; left; left &= left - 1) by_[id(*w, __builtin_ctz(left))].seen = {generic, async};
}

void Races::warp_barrier(Warp &w, uint32_t mask) {
  const Known all = together(w, mask, {});
  for (uint32_t left = mask; left; left &= left - 1) by_[id(w, __builtin_ctz(left))].seen = all;
}

void Races::warp_barrier(Warp &w, const uint32_t *masks) {
  for (uint32_t left = w.mask; left;) {
    const uint32_t mask = masks[__builtin_ctz(left)] & w.mask;
    warp_barrier(w, mask);
    left &= ~mask;
  }
}

void Races::fence(Warp &w, Scope scope) {
  for (uint32_t left = w.mask; left; left &= left - 1) {
    const uint32_t t = id(w, __builtin_ctz(left));
    Thread &me = by_[t];
    join(me.seen, me.pending[cta]);
    me.pending[cta] = {};
    if (scope != cta) join(me.seen, me.pending[gpu]), me.pending[gpu] = {};
    const Known all = handed_on(t);
    me.released[cta] = all;
    if (scope != cta) me.released[gpu] = all;
  }
}

void Races::proxy_fence(Warp &w) {
  for (uint32_t left = w.mask; left; left &= left - 1) {
    const uint32_t t = id(w, __builtin_ctz(left));
    by_[t].seen.async = handed_on(t).generic;
  }
}

void Races::acquire(Warp &w, int lane, uintptr_t at, Flags f) {
  const auto found = places_.find(at);
  if (found == places_.end()) return;
  const uint32_t t = id(w, lane);
  const Place &place = found->second;
  const bool own = place.block == w.block->index, now = f.order() == ptx::acquire || f.order() == acq_rel;
  if (own) join(now ? by_[t].seen : by_[t].pending[cta], place.near);
  if (own || f.scope() != cta) join(now ? by_[t].seen : by_[t].pending[own ? cta : gpu], place.far);
}

void Races::release(Warp &w, int lane, uintptr_t at, Flags f, bool joins) {
  const uint32_t t = id(w, lane);
  const bool now = f.order() == ptx::release || f.order() == acq_rel;
  const Known all = now ? handed_on(t) : Known{};
  const Known &near = now ? all : by_[t].released[cta];
  const Known &far = now && f.scope() != cta ? all : f.scope() != cta ? by_[t].released[gpu] : Known{};
  Place &place = places_[at];
  if (!joins) place = {};
  if (place.block != w.block->index) place.near = {};
  place.block = w.block->index;
  join(place.near, near);
  join(place.far, far);
}

bool Races::init(Warp &w, const In *, int lane, const Mbarrier &) {
  const uint32_t t = id(w, lane);
  phases_[w.block->index].push_back({components_++, t, by_[t].time, false, {}, {}});
  return true;
}

void Races::init_fence(Warp &w) {
  for (Phase &phase : phases_[w.block->index])
    for (uint32_t left = w.mask; left; left &= left - 1)
      phase.fenced |= phase.initializer == id(w, __builtin_ctz(left));
}

bool Races::arrive(Warp &w, const In *in, int lane, const Mbarrier &b) {
  const uint32_t t = id(w, lane);
  Phase &phase = phases_[w.block->index][b.index];
  if (!knows(t, phase.initializer, phase.initialized))
    return fault(w, in, "nothing orders this arrival after the mbarrier.init", 1u << lane), false;
  const Order order = Flags{in->flags}.order();
  if (order == relaxed)
    join(phase.pending, by_[t].released[cta]);
  else
    join(phase.pending, handed_on(t));
  return true;
}

bool Races::waited(Warp &w, const In *in, int lane, const Mbarrier &b) {
  const uint32_t t = id(w, lane);
  const Phase &phase = phases_[w.block->index][b.index];
  if (!knows(t, phase.initializer, phase.initialized))
    return fault(w, in, "nothing orders this wait after the mbarrier.init", 1u << lane), false;
  join(Flags{in->flags}.order() == relaxed ? by_[t].pending[cta] : by_[t].seen, phase.over);
  return true;
}

void Races::phase_over(Block &block, const Mbarrier &b) {
  Phase &phase = phases_[block.index][b.index];
  join(phase.over, phase.pending);
  phase.pending = {};
  auto made = phase.over.generic ? std::make_shared<std::vector<uint32_t>>(*phase.over.generic)
                                 : std::make_shared<std::vector<uint32_t>>(count_);
  if (made->size() <= phase.component) made->resize(phase.component + 1);
  (*made)[phase.component] = b.phase + 1;
  phase.over.generic = made;
}

} // namespace ptx
