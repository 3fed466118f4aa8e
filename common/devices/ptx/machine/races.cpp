// The race detector's checks of an access against the last write of its words and the reads since.
#include "races.hpp"

#include "places.hpp"

namespace ptx {

Races::Races(Grid &grid) : grid_(grid) {
  const Launch &l = grid.launch;
  threads_ = l.block[0] * l.block[1] * l.block[2];
  const uint32_t blocks = l.grid[0] * l.grid[1] * l.grid[2];
  count_ = components_ = threads_ * blocks;
  by_.resize(count_), nothing_.resize(count_);
  phases_.resize(blocks), shared_.resize(blocks);
  for (uint32_t i = 0; i < l.buffer_count; ++i) {
    const Buffer &b = l.buffers[i];
    if (b.writable) buffers_.push_back({b.start / Shadow::word * Shadow::word, b.start + b.bytes, {}});
  }
}

Shadow *Races::shadow(const Warp &w, const void *at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto &memory = w.block->memory;
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  if (address - start < memory.size()) {
    Shadow &s = shared_[w.block->index];
    if (!s.end) s = {start, start + memory.size(), {}};
    return &s;
  }
  for (Shadow &s : buffers_)
    if (address - s.start < s.end - s.start) return &s;
  return nullptr; // never written, or local
}

Races::Access Races::access(Warp &w, const In *in, uint32_t lanes, uint32_t bytes, bool strong) const {
  const Flags f{in->flags};
  const int lane = std::countr_zero(lanes);
  const uint32_t t = id(w, lane);
  Access made{w, in, lane, by_[t].seen.generic.get(), {}, lanes & (lanes - 1) ? UINT32_MAX : t};
  made.me.who = t - uint32_t(lane), made.me.lanes = lanes, made.me.time = by_[t].time;
  made.me.pc = uint32_t(in - grid_.program.code.data());
  made.me.strong = strong, made.me.scope = f.scope(), made.me.bytes = uint8_t(bytes), made.me.linked = true;
  return made;
}

// True if access `a` is ordered after `e`, of all its lanes.
bool Races::knows(const Access &a, const Epoch &e) {
  uint32_t unseen = e.lanes;
  if (e.lanes & (e.lanes - 1) && a.seen && e.who + warp_size <= a.seen->size()) {
    const uint32_t *times = a.seen->data() + e.who, time = e.time;
    alignas(64) int32_t before[warp_size];
    LANES before[i] = times[i] < time;
    unseen &= pack(before);
  } else {
    for (const int lane : Each{e.lanes})
      if (holds(a.seen, e.who + uint32_t(lane), e.time)) unseen &= ~(1u << lane);
  }
  if (a.one - e.who < warp_size && e.time != in_flight) unseen &= ~(1u << (a.one - e.who));
  return unseen == 0;
}

// True if both are strong, of one size, each within the other's scope, and not volatile accesses of one warp, which
// would count on running in step.
bool Races::strong_pair(const Epoch &a, const Epoch &b) const {
  return a.strong && b.strong && a.bytes == b.bytes && !(a.in_step && b.in_step && a.who == b.who) &&
         ((a.scope != cta && b.scope != cta) || block_of(a.who) == block_of(b.who));
}

// True if what must not race with `e`, which comes before `later`, must not race with `later` either.
bool Races::covers(const Epoch &later, const Epoch &e) {
  return !later.strong || (e.strong && e.scope >= later.scope && e.bytes == later.bytes && e.in_step == later.in_step);
}

std::string Races::name(uintptr_t at) const {
  for (uint32_t i = 0; i < grid_.launch.buffer_count; ++i) {
    const Buffer &b = grid_.launch.buffers[i];
    if (at - b.start < b.bytes) return std::string(b.name) + " byte " + std::to_string(at - b.start);
  }
  for (const auto &block : grid_.blocks)
    if (const size_t offset = at - reinterpret_cast<uintptr_t>(block->memory.data()); offset < block->memory.size())
      return "shared memory byte " + std::to_string(offset);
  return "memory";
}

bool Races::report(const Access &a, const Epoch &other, const char *what, const char *did, uintptr_t at) {
  const uint32_t pc = other.pc, mine = a.me.pc;
  if (!pairs_.insert(std::minmax(pc, mine)).second) return true;
  uint32_t thread = other.thread();
  for (const int lane : Each{other.lanes}) // one that this access is not ordered after
    if (const Epoch one = other.only(1u << lane); !knows(a, one)) thread = one.thread();
  const std::string who = thread < count_ ? " of block " + std::to_string(thread / threads_) + ", thread " +
                                                std::to_string(thread % threads_)
                                          : " of a bulk copy";
  found_ += std::string(what) + " " + name(at) + ", which {pc " + std::to_string(pc) + "}" + who + " " + did + ": " +
            grid_.place(a.w, a.in, 1u << a.lane) + "\n";
  if (pairs_.size() < most_pairs) return true;
  grid_.fail(raced, a.w, a.in, "");
  return false;
}

bool Races::add_reader(const Access &a, Cell &c) const {
  const Epoch &me = a.me;
  const auto merged = [&](Epoch &r) { // a later read by the same lanes replaces an earlier one
    if (r.who != me.who || (r.time == in_flight) != (me.time == in_flight)) return false;
    if (r.time == me.time && r.pc == me.pc && r.bytes == me.bytes && r.linked) return r.lanes |= me.lanes, true;
    if (!covers(me, r)) return false;
    r.lanes &= ~me.lanes;
    return r.lanes == 0 && (r = me, true);
  };
  const auto over = [&](const Epoch &r) { // an access ordered after this read is also after r
    return !r.any() || (covers(me, r) && me.who < count_ && knows(a, r));
  };
  if (!c.many) {
    if (over(c.read)) return c.read = me, true;
    if (merged(c.read)) return true;
    c.many = std::make_unique<std::vector<Epoch>>(1, c.read);
    c.read = {};
  }
  auto &all = *c.many;
  auto slot = std::ranges::lower_bound(all, me.who, {}, &Epoch::who);
  for (; slot != all.end() && slot->who == me.who; ++slot)
    if (merged(*slot)) return true;
  if (all.size() == all.capacity()) {
    std::erase_if(all, over);
    slot = std::ranges::upper_bound(all, me.who, {}, &Epoch::who);
  }
  all.insert(slot, me);
  return true;
}

// Checks against the earlier strong writes, and the write that made the word empty, which every access must follow.
// after: if `a` is ordered after the last write, and so after those that it is linked to.
template <class Harmless> bool Races::check_earlier(const Access &a, const Cell &c, uintptr_t at, const char *what,
                                                    bool after, Harmless harmless) {
  if (c.rare && c.rare->emptied.any() && !knows(a, c.rare->emptied))
    return report(a, c.rare->emptied, what, "has made empty", at);
  for (size_t i = 0; c.rare && i < c.rare->earlier.size(); ++i)
    if (const Epoch &e = c.rare->earlier[i]; !knows(a, e) && !harmless(e) && !(e.linked && after))
      return report(a, e, what, "has written", at);
  return true;
}

bool Races::check_read(const Access &a, Cell &c, uintptr_t at, bool no_coherence) {
  if (no_coherence) {
    if (c.write.any()) return report(a, c.write, "ld.global.nc of", "writes in this launch", at);
    c.no_coherence = 1 + a.me.pc;
  }
  const bool known = !c.write.any() || knows(a, c.write);
  if (known && !c.rare) return true;
  for (const int lane : Each{a.one == UINT32_MAX ? a.me.lanes : 0})
    if (!check_read(access(a.w, a.in, 1u << lane, a.me.bytes, a.me.strong), c, at, false)) return false;
  if (a.one == UINT32_MAX) return true;
  const auto harmless = [&](const Epoch &e) { return strong_pair(a.me, e); };
  const bool allowed = known || harmless(c.write), after = known || (!allowed && follows(a, c, c.write));
  if (!check_earlier(a, c, at, "nothing orders this read of", after, harmless)) return false;
  if (allowed || after) return true;
  if (c.write.thread() == a.one) return report(a, c.write, "a read of", "is still copying", at);
  return report(a, c.write, "nothing orders this read of", "has written", at);
}

// True if the value is in memory already, or another lane stores it there in the same instruction. Within a block that
// is no race: compilers let several threads store one result.
bool Races::Stored::same() const {
  const uint64_t value = values[lane * count + k];
  if (std::memcmp(to[lane] + uint32_t(k) * bytes, &value, bytes) == 0) return true;
  for (const int other : Each{mask & ((1u << lane) - 1)})
    if (to[other] == to[lane] && values[other * count + k] == value) return true;
  return false;
}

bool Races::check_write(const Access &a, Cell &c, uintptr_t at, const Stored *stored) {
  const Epoch &me = a.me;
  Epoch before = c.write;
  const auto harmless = [&](const Epoch &e) { // an earlier write
    return strong_pair(me, e) || (stored && block_of(me.who) == block_of(e.who) && stored->same());
  };
  c.write = me;
  if (c.no_coherence) {
    Epoch loaded = me;
    loaded.pc = c.no_coherence - 1;
    return report(a, loaded, "a write of", "loads by ld.global.nc", at);
  }
  const bool known = !before.any() || knows(a, before) || follows(a, c, before), allowed = known || harmless(before);
  if (!allowed && !report(a, before, "nothing orders this write of", "has written", at)) return false;
  const bool hidden = before.any() && !before.empties && (known ? !covers(me, before) : allowed || before.strong);
  if (!known || c.rare || hidden) {
    if (!check_earlier(a, c, at, "nothing orders this write of", known, harmless)) return false;
    std::vector<Epoch> &earlier = c.more().earlier;
    bool added = !hidden;
    before.linked = me.strong && !stored; // by an atomic
    for (Epoch &e : earlier) {
      if ((knows(a, e) || (e.linked && known)) && covers(me, e)) e.lanes = 0;
      e.linked &= before.linked;
      if (added || e.who != before.who) continue;
      if (covers(before, e)) e.lanes &= ~before.lanes;
      if (e.time == before.time && e.pc == before.pc && e.linked == before.linked)
        e.lanes |= before.lanes, added = true;
    }
    std::erase_if(earlier, [](const Epoch &e) { return !e.any(); });
    if (!added) earlier.push_back(before);
    if (!me.strong) c.rare->emptied = {};
  }
  if (me.empties) c.more().emptied = me;
  bool left = false; // readers remain for the next writer's check
  for (Epoch &r : c.reads()) {
    r.linked = false;
    if (!r.any() || knows(a, r)) {
      r = {};
      continue;
    }
    for (const int lane : Each{r.lanes}) { // all but its own
      const Epoch one = r.only(1u << lane);
      if (knows(a, one))
        r.lanes &= ~one.lanes;
      else if (!strong_pair(me, one) && !report(a, one, "nothing orders this write of", "has read", at))
        return false;
    }
    left = true;
  }
  if (!left) c.forget_reads();
  return true;
}

bool Races::load(Warp &w, const In *in, uint32_t mask, uint8_t *const *from, uint32_t bytes, int count) {
  const Flags f{in->flags};
  for (uint32_t left = mask, alike = 0; left;) {
    const int lane = std::countr_zero(left);
    if (!on(alike, lane)) alike = lanes_like(w, lane, left);
    alignas(64) int32_t equal[warp_size];
    LANES equal[i] = from[i] == from[lane];
    const uint32_t lanes = pack(equal) & alike & left;
    left &= ~lanes;
    Shadow *s = shadow(w, from[lane]);
    if (!s) continue;
    Access a = access(w, in, lanes, bytes, f.strong());
    a.me.in_step = f.order() == in_step && s == &shared_[w.block->index];
    const auto start = reinterpret_cast<uintptr_t>(from[lane]);
    if (!s->each(start, bytes * uint32_t(count), [&](Cell &c, uintptr_t at) {
          return check_read(a, c, at, f.order() == no_coherence) && add_reader(a, c);
        }))
      return false;
    for (const int each : Each{f.strong() ? lanes : 0})
      for (int k = 0; k < count; ++k) acquire(w, each, start + uintptr_t(k) * bytes, f);
  }
  return true;
}

bool Races::store(Warp &w, const In *in, uint32_t mask, uint8_t *const *to, uint32_t bytes, int count,
                  const uint64_t *values) {
  const Flags f{in->flags};
  for (const int lane : Each{mask}) {
    Shadow *s = shadow(w, to[lane]);
    if (!s) continue;
    for (int k = 0; k < count; ++k) {
      const auto start = reinterpret_cast<uintptr_t>(to[lane]) + uintptr_t(k) * bytes;
      const Stored stored{mask, lane, k, count, bytes, to, values};
      // Only a relaxed one: a counter that a release stores may come to this value.
      const bool empties = f.order() == relaxed && bytes == 4 && values[lane * count + k] == grid_.launch.empty;
      Access a = access(w, in, 1u << lane, bytes, f.strong() && !empties);
      a.me.in_step = f.order() == in_step && s == &shared_[w.block->index], a.me.empties = empties;
      bool strong = false;
      if (!s->each(start, bytes, [&](Cell &c, uintptr_t at) {
            strong |= c.write.strong;
            return check_write(a, c, at, &stored);
          }))
        return false;
      if (f.strong())
        release(w, lane, start, f, false);
      else if (strong)
        places_.erase(start);
    }
  }
  return true;
}

bool Races::atomic(Warp &w, const In *in, int lane, uint8_t *to, uint32_t bytes) {
  const Flags f{in->flags};
  if (!shadow(w, to)) return true;
  const Access a = access(w, in, 1u << lane, bytes, true);
  if (!cells(w, to, bytes,
             [&](Cell &c, uintptr_t at) { return check_read(a, c, at, false) && check_write(a, c, at, nullptr); }))
    return false;
  if (in->d) acquire(w, lane, reinterpret_cast<uintptr_t>(to), f); // red reads nothing that could be acquired
  release(w, lane, reinterpret_cast<uintptr_t>(to), f, true);
  return true;
}

} // namespace ptx
