// The race detector's vector clocks: synchronization, which hands them on, and asynchronous copies.
#include "races.hpp"

#include "lanes.hpp"

namespace ptx {

static void raise(std::vector<uint32_t> &times, const std::vector<uint32_t> &by) { // to the later ones of both
  times.resize(std::max(times.size(), by.size()));
  uint32_t *to = times.data();
  const uint32_t *from = by.data();
  for (size_t i = 0, count = by.size(); i < count; ++i) to[i] = std::max(to[i], from[i]);
}

Seen Races::joined(const Seen &a, const Seen &b) {
  if (!b || a == b) return a;
  if (!a) return b;
  if (a == last_a_ && b == last_b_) return last_join_; // lanes of a warp mostly know the same
  const size_t both = std::min(a->size(), b->size());
  bool more = b->size() > a->size();
  for (size_t i = 0; i < both && !more; ++i) more = (*b)[i] > (*a)[i];
  Seen result = a;
  if (more) {
    const auto made = copy_of(a);
    raise(*made, *b);
    result = made;
  }
  last_a_ = a, last_b_ = b, last_join_ = result;
  return result;
}

void Races::join(Known &to, const Known &from) {
  to.generic = joined(to.generic, from.generic);
  for (const size_t k : {0, 1}) to.async[k] = joined(to.async[k], from.async[k]);
}

Known Races::handed_on(uint32_t t) {
  const auto made = copy_of(by_[t].seen.generic);
  (*made)[t] = by_[t].time++;
  return {made, by_[t].seen.async};
}

// Join of the vectors of these lanes and of `before`, with the lanes' own times, which advance.
Known Races::together(std::span<const Barrier::Waiting> who, const Known &before) {
  std::vector<Seen> different = {before.generic}; // most know the same
  std::array<Seen, 2> async = before.async;
  for (const auto &[w, mask, in] : who)
    for (const int lane : Each{mask}) {
      const Known &seen = thread(*w, lane).seen;
      for (const size_t k : {0, 1}) async[k] = joined(async[k], seen.async[k]);
      if (std::ranges::find(different, seen.generic) == different.end()) different.push_back(seen.generic);
    }
  const auto all = copy_of(different.back());
  for (const Seen &seen : different)
    if (seen && seen != different.back()) raise(*all, *seen);
  for (const auto &[w, mask, in] : who)
    for (const int lane : Each{mask}) (*all)[id(*w, lane)] = thread(*w, lane).time++;
  return {all, async};
}

// The lanes `among` these that have the same time and vector as this one.
uint32_t Races::lanes_like(const Warp &w, int lane, uint32_t among) const {
  const Thread &me = by_[id(w, lane)];
  uint32_t found = 0;
  for (const int each : Each{among}) {
    const Thread &other = by_[id(w, each)];
    if (other.time == me.time && other.seen.generic == me.seen.generic) found |= 1u << each;
  }
  return found;
}

// True if `a` is ordered after a read of what `write`, the last one, has written: that is causality order, too.
bool Races::follows(const Access &a, Cell &c, const Epoch &write) {
  if (!write.strong) return false;
  for (const Epoch &r : c.reads())
    for (const int lane : Each{r.linked ? r.lanes : 0})
      if (const uint32_t reader = r.who + uint32_t(lane); reader == a.one || holds(a.seen, reader, r.time)) return true;
  return false;
}

void Races::arrive(Warp &w, const Barrier &barrier) {
  const Barrier::Waiting here[] = {{&w, w.live, nullptr}};
  Known &all = arrived_[&barrier];
  all = together(here, all);
}

void Races::barrier(const Barrier &barrier) {
  const Known all = together(barrier.waiting, arrived_[&barrier]);
  arrived_.erase(&barrier);
  for (const auto &[w, mask, in] : barrier.waiting)
    for (const int lane : Each{mask}) thread(*w, lane).seen = all;
}

void Races::warp_barriers(Warp &w, uint32_t lanes, const uint32_t *masks) {
  while (lanes) {
    const uint32_t members = masks[std::countr_zero(lanes)] & w.live;
    const Barrier::Waiting here[] = {{&w, members, nullptr}};
    const Known all = together(here, {});
    for (const int lane : Each{members}) thread(w, lane).seen = all;
    lanes &= ~members;
  }
}

void Races::fence(Warp &w, Flags f) {
  for (const int lane : Each{w.mask}) {
    Thread &me = thread(w, lane);
    for (const Scope each : {cta, gpu})
      if (f.order() != ptx::release && each <= f.scope()) join(me.seen, me.pending[each]), me.pending[each] = {};
    if (f.order() == ptx::acquire) continue;
    const Known all = handed_on(id(w, lane)); // what it has acquired included
    for (const Scope each : {cta, gpu})
      if (each <= f.scope()) me.released[each] = all;
  }
}

void Races::proxy_fence(Warp &w, Space space) {
  for (const int lane : Each{w.mask}) {
    const Seen all = handed_on(id(w, lane)).generic;
    if (space != shared) thread(w, lane).seen.async[0] = all;
    if (space != global) thread(w, lane).seen.async[1] = all;
  }
}

void Races::acquire(Warp &w, int lane, uintptr_t at, Flags f) {
  const auto found = places_.find(at);
  if (found == places_.end()) return;
  const uint32_t t = id(w, lane);
  const Place &place = found->second;
  const bool now = f.order() == ptx::acquire || f.order() == acq_rel;
  const auto near = place.near.find(w.block->index);
  if (near != place.near.end()) join(now ? by_[t].seen : by_[t].pending[cta], near->second);
  if (f.scope() != cta) join(now ? by_[t].seen : by_[t].pending[gpu], place.far);
}

void Races::release(Warp &w, int lane, uintptr_t at, Flags f, bool joins) {
  const uint32_t t = id(w, lane);
  const bool now = f.order() == ptx::release || f.order() == acq_rel;
  const Known all = now ? handed_on(t) : Known{};
  const Known &near = now ? all : by_[t].released[cta];
  const Known &far = now && f.scope() != cta ? all : f.scope() != cta ? by_[t].released[gpu] : Known{};
  Place &place = places_[at];
  if (!joins) place.near.clear(), place.far = {};
  const auto hands = [&](const Known &close, const Known &all_over) {
    if (close.generic) join(place.near[w.block->index], close);
    join(place.far, all_over);
  };
  hands(near, far);
  if (now)
    place.releaser = t, place.its_near = near, place.its_far = far;
  else if (place.releaser == t)
    hands(place.its_near, f.scope() == cta ? Known{} : place.its_far);
}

bool Races::init(Warp &w, const In *in, int lane, const uint8_t *at) {
  const Access a = access(w, in, 1u << lane, 8, false);
  phases_[w.block->index].push_back({components_++, id(w, lane), thread(w, lane).time, false, {}, {}});
  return cells(w, at, 8, [&](Cell &c, uintptr_t word) { return check_write(a, c, word, nullptr); });
}

void Races::init_fence(Warp &w) {
  for (Phase &phase : phases_[w.block->index])
    for (const int lane : Each{w.mask}) phase.fenced |= phase.initializer == id(w, lane);
}

// The mbarrier's phase; null after a fault: nothing orders what the lane does after the mbarrier.init.
Races::Phase *Races::phase_for(Warp &w, const In *in, int lane, const Mbarrier &b, const char *what) {
  Phase &phase = phases_[w.block->index][b.index];
  const uint32_t t = id(w, lane);
  if (t == phase.initializer || holds(by_[t].seen.generic.get(), phase.initializer, phase.initialized)) return &phase;
  fault(w, in, std::string("nothing orders this ") + what + " after the mbarrier.init", 1u << lane);
  return nullptr;
}

bool Races::arrive(Warp &w, const In *in, int lane, const Mbarrier &b) {
  Phase *phase = phase_for(w, in, lane, b, "arrival");
  if (!phase) return false;
  const bool now = Flags{in->flags}.order() != relaxed;
  join(phase->pending, now ? handed_on(id(w, lane)) : thread(w, lane).released[cta]);
  return true;
}

bool Races::waited(Warp &w, const In *in, int lane, const Mbarrier &b) {
  const Phase *phase = phase_for(w, in, lane, b, "wait");
  if (!phase) return false;
  Thread &me = thread(w, lane);
  join(Flags{in->flags}.order() == relaxed ? me.pending[cta] : me.seen, phase->over);
  return true;
}

void Races::phase_over(Block &block, const Mbarrier &b) {
  Phase &phase = phases_[block.index][b.index];
  join(phase.over, phase.pending);
  phase.pending = {};
  const auto made = copy_of(phase.over.generic);
  if (made->size() <= phase.component) made->resize(phase.component + 1);
  (*made)[phase.component] = b.phase + 1;
  phase.over.generic = made;
}

bool Races::copy_begins(Warp &w, const Copy &copy, int lane) {
  const Access now = access(w, copy.in, 1u << lane, 0, false);
  Access a = now;
  a.me.time = in_flight;
  return cells(w, copy.from[lane], copy.read[lane],
               [&](Cell &c, uintptr_t at) { return check_read(now, c, at, false) && add_reader(a, c); }) &&
         cells(w, copy.to[lane], copy.bytes, [&](Cell &c, uintptr_t at) { return check_write(a, c, at, nullptr); });
}

void Races::copy_lands(Warp &w, const Copy &copy, int lane) {
  const Access a = access(w, copy.in, 1u << lane, 0, false);
  cells(w, copy.to[lane], copy.bytes, [&](Cell &c, uintptr_t) { return c.write.time = a.me.time, true; });
  has_read(w, copy, lane, a);
}

void Races::has_read(Warp &w, const Copy &copy, int lane, const Access &a) {
  cells(w, copy.from[lane], copy.read[lane], [&](Cell &c, uintptr_t) {
    for (Epoch &r : c.reads())
      if (r.who == id(w, 0) && r.time == in_flight && r.pc == a.me.pc) r.lanes &= ~(1u << lane);
    return add_reader(a, c);
  });
}

// An access on behalf of a lane that belongs to the mbarrier's phase.
Races::Access Races::of_phase(Warp &w, const In *in, int lane, const Mbarrier &b) const {
  Access a = access(w, in, 1u << lane, 0, false);
  a.me.who = phases_[w.block->index][b.index].component, a.me.lanes = 1, a.me.time = b.phase + 1;
  return a;
}

// From here on the lane's copies belong to the phase, as bulk copies do. The arrival orders nothing else of the lane.
bool Races::handed_over(Warp &w, const In *in, int lane, const Mbarrier &b) {
  if (!phase_for(w, in, lane, b, "arrival")) return false;
  for (const Copy &copy : w.copies) {
    if (!on(copy.mask & ~copy.handed, lane)) continue;
    const Access a = of_phase(w, copy.in, lane, b);
    cells(w, copy.to[lane], copy.bytes, [&](Cell &c, uintptr_t) { return c.write = a.me, true; });
    has_read(w, copy, lane, a);
  }
  return true;
}

bool Races::bulk_begins(Warp &w, const In *in, int lane, uint8_t *to, const uint8_t *from, uint32_t bytes,
                        const Mbarrier &b) {
  const Phase *phase = phase_for(w, in, lane, b, "bulk copy");
  if (!phase) return false;
  const Access a = of_phase(w, in, lane, b);
  const auto &async = by_[a.one].seen.async;
  if (!phase->fenced && !holds(async[1].get(), phase->initializer, phase->initialized))
    grid_.note(w, in, "by the guide's letter, no fence has handed the mbarrier.init to the async proxy", 1u << lane);
  const auto written = [&](Cell &c, uintptr_t at, const Seen &seen) { // as the async proxy sees it, for this thread
    const Epoch &e = c.write;
    if (!e.any() || (e.who >= count_ ? knows(a, e) : holds(seen.get(), e.thread(), e.time))) return true;
    return report(
        a, e, knows(a, e) ? "no fence.proxy.async comes before this bulk copy of" : "nothing orders this bulk copy of",
        "has written", at);
  };
  return cells(w, to, bytes,
               [&](Cell &c, uintptr_t at) {
                 if (!written(c, at, async[1])) return false;
                 for (const Epoch &r : c.reads())
                   if (r.any() && !knows(a, r) && !report(a, r, "nothing orders this bulk copy over", "has read", at))
                     return false;
                 c.forget_reads();
                 c.write = a.me;
                 return true;
               }) &&
         cells(w, from, bytes, [&](Cell &c, uintptr_t at) { return written(c, at, async[0]) && add_reader(a, c); });
}

} // namespace ptx
