// The race detector's shadow words: last writer, readers since, and the check of their order.
#include "races.hpp"

#include "places.hpp"

namespace ptx {

constexpr size_t page_cells = 512;
constexpr uint32_t in_flight = UINT32_MAX; // time of a write by cp.async before any wait for it

Races::Races(Grid &grid) : grid_(grid) {
  const Launch &l = grid.launch;
  threads_ = l.block[0] * l.block[1] * l.block[2];
  const uint32_t blocks = l.grid[0] * l.grid[1] * l.grid[2];
  count_ = components_ = threads_ * blocks;
  by_.resize(count_);
  phases_.resize(blocks), shared_.resize(blocks);
  for (uint32_t i = 0; i < l.buffer_count; ++i) {
    const Buffer &b = l.buffers[i];
    if (b.writable) buffers_.push_back({b.start, b.start + b.bytes, b.cell, 0, 0, {}});
  }
}

Races::Shadow *Races::shadow(const Warp &w, const void *at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto &memory = w.block->memory;
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  if (address - start < memory.size()) {
    Shadow &s = shared_[w.block->index];
    if (!s.cell) s = {start, start + memory.size(), 2, w.block->index * threads_, threads_, {}};
    return &s;
  }
  for (Shadow &s : buffers_)
    if (address - s.start < s.end - s.start) return &s;
  return nullptr; // never written, or local
}

Cell &Races::cell(Shadow &s, uintptr_t at) {
  const size_t number = (at - s.start) / s.cell, page = number / page_cells;
  if (s.pages.size() <= page) s.pages.resize(page + 1);
  if (!s.pages[page]) s.pages[page] = std::make_unique<Cell[]>(page_cells);
  return s.pages[page][number % page_cells];
}

// Strong for each other: of one size, and each within the other's scope.
bool Races::strong_pair(const Epoch &a, const Epoch &b) const {
  return a.strong && b.strong && a.bytes == b.bytes &&
         ((a.scope != cta && b.scope != cta) || block_of(a.who) == block_of(b.who));
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

bool Races::report(Warp &w, const In *in, int lane, const Epoch &other, const char *what, const char *did,
                   uintptr_t at) {
  const std::string who = other.who < count_ ? " of block " + std::to_string(other.who / threads_) + ", thread " +
                                                   std::to_string(other.who % threads_)
                                             : " of a bulk copy";
  grid_.fail(raced, w, in,
             std::string(what) + " " + name(at) + ", which {pc " + std::to_string(other.pc) + "}" + who + " " + did,
             1u << lane);
  return false;
}

void Races::add_reader(Shadow &s, Cell &c, const Epoch &me) {
  Epoch &one = c.read[me.strong];
  auto &many = c.many[me.strong];
  if (!many) {
    if (!one.any() || one.who == me.who || (me.who < count_ && knows(me.who, one))) {
      one = me;
      return;
    }
    many = std::make_unique<Readers>(s.first, s.readers ? s.readers : count_);
    many->add(one);
  }
  many->add(me);
}

bool Races::check_earlier(Warp &w, const In *in, int lane, const Cell &c, const Epoch &me, uintptr_t at,
                          const char *what, bool same) {
  for (const Epoch &e : c.earlier)
    if (e.who != me.who && !knows(me.who, e) && !harmless(me, e, same))
      return report(w, in, lane, e, what, "has written", at);
  return true;
}

bool Races::check_read(Warp &w, const In *in, int lane, Cell &c, Epoch me, uintptr_t at, bool no_coherence) {
  if (no_coherence) {
    if (c.write.any()) return report(w, in, lane, c.write, "ld.global.nc of", "writes in this launch", at);
    c.no_coherence = 1 + me.pc;
  }
  if (!check_earlier(w, in, lane, c, me, at, "nothing orders this read of", false)) return false;
  if (!c.write.any() || knows(me.who, c.write) || strong_pair(me, c.write)) return true;
  if (c.write.who == me.who) return report(w, in, lane, c.write, "a read of", "is still copying", at);
  return report(w, in, lane, c.write, "nothing orders this read of", "has written", at);
}

// same: equal to the stored value, or to another lane's at once. Within a block that is no race: compilers let several
// threads store one result.
bool Races::check_write(Warp &w, const In *in, int lane, Cell &c, const Epoch &me, uintptr_t at, bool same) {
  if (c.no_coherence)
    return report(w, in, lane, {me.who, 0, c.no_coherence - 1}, "a write of", "loads by ld.global.nc", at);
  if (c.write.any() && !knows(me.who, c.write) && !harmless(me, c.write, same))
    return report(w, in, lane, c.write, "nothing orders this write of", "has written", at);
  if (!check_earlier(w, in, lane, c, me, at, "nothing orders this write of", same)) return false;
  const bool unseen = c.write.strong && c.write.who != me.who && !knows(me.who, c.write);
  std::erase_if(c.earlier, [&](const Epoch &e) { return knows(me.who, e) || (unseen && e.who == c.write.who); });
  if (unseen) c.earlier.push_back(c.write);
  for (int strong = 0; strong < 2; ++strong) {
    const auto seen = [&](const Epoch &r) { return !r.any() || r.who == me.who || knows(me.who, r); };
    const auto wrong = [&](const Epoch &r) { return !seen(r) && !harmless(me, r, same); };
    auto &many = c.many[strong];
    bool left = false; // readers remain for the next writer's check
    for (Epoch &r : many ? many->all() : std::span(&c.read[strong], 1)) {
      if (wrong(r)) return report(w, in, lane, r, "nothing orders this write of", "has read", at);
      if (seen(r)) r = {};
      left |= r.any();
    }
    if (!left) many.reset(), c.read[strong] = {};
  }
  c.write = me;
  return true;
}

bool Races::load(Warp &w, const In *in, uint32_t mask, uint8_t *const *from, uint32_t bytes, int count) {
  const Flags f{in->flags};
  const auto pc = uint32_t(in - grid_.program.code.data());
  for (uint32_t left = mask; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint32_t t = id(w, lane);
    const Epoch me{t, by_[t].time, pc, f.strong(), uint8_t(f.scope()), uint8_t(bytes)};
    Shadow *s = shadow(w, from[lane]);
    if (!s) continue;
    const auto start = reinterpret_cast<uintptr_t>(from[lane]);
    for (uintptr_t at = start; at < start + bytes * uint32_t(count); at += s->cell) {
      Cell &c = cell(*s, at);
      if (!check_read(w, in, lane, c, me, at, f.order() == no_coherence)) return false;
      add_reader(*s, c, me);
    }
    if (f.strong())
      for (int k = 0; k < count; ++k) acquire(w, lane, start + uintptr_t(k) * bytes, f);
  }
  return true;
}

bool Races::store(Warp &w, const In *in, uint32_t mask, uint8_t *const *to, uint32_t bytes, int count,
                  const uint64_t *values) {
  const Flags f{in->flags};
  const auto pc = uint32_t(in - grid_.program.code.data());
  for (uint32_t left = mask; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint32_t t = id(w, lane);
    Shadow *s = shadow(w, to[lane]);
    if (!s) continue;
    for (int k = 0; k < count; ++k) {
      const auto start = reinterpret_cast<uintptr_t>(to[lane]) + uintptr_t(k) * bytes;
      bool same = std::memcmp(to[lane] + uint32_t(k) * bytes, &values[lane * count + k], bytes) == 0;
      for (uint32_t others = mask & ((1u << lane) - 1); others && !same; others &= others - 1) {
        const int other = __builtin_ctz(others); // lanes may store one value at one place
        same = to[other] == to[lane] && values[other * count + k] == values[lane * count + k];
      }
      const Epoch me{t, by_[t].time, pc, f.strong(), uint8_t(f.scope()), uint8_t(bytes)};
      for (uintptr_t at = start; at < start + bytes; at += s->cell)
        if (!check_write(w, in, lane, cell(*s, at), me, at, same)) return false;
      if (f.strong())
        release(w, lane, start, f, false);
      else if (!places_.empty())
        places_.erase(start);
    }
  }
  return true;
}

bool Races::atomic(Warp &w, const In *in, int lane, uint8_t *to, uint32_t bytes) {
  const Flags f{in->flags};
  const uint32_t t = id(w, lane);
  Shadow *s = shadow(w, to);
  if (!s) return true;
  const auto start = reinterpret_cast<uintptr_t>(to);
  const Epoch me{t, by_[t].time, uint32_t(in - grid_.program.code.data()), true, uint8_t(f.scope()), uint8_t(bytes)};
  for (uintptr_t at = start; at < start + bytes; at += s->cell)
    if (!check_read(w, in, lane, cell(*s, at), me, at, false) || !check_write(w, in, lane, cell(*s, at), me, at, false))
      return false;
  acquire(w, lane, start, f);
  release(w, lane, start, f, true);
  return true;
}

bool Races::copy_begins(Warp &w, const In *in, int lane, uint8_t *to, uint32_t bytes) {
  const uint32_t t = id(w, lane);
  Shadow *s = shadow(w, to);
  const auto start = reinterpret_cast<uintptr_t>(to);
  const Epoch me{t, in_flight, uint32_t(in - grid_.program.code.data()), false, 0, 0};
  for (uintptr_t at = start; s && at < start + bytes; at += s->cell)
    if (!check_write(w, in, lane, cell(*s, at), me, at, false)) return false;
  return true;
}

void Races::copy_lands(Warp &w, const Copy &copy, int lane) {
  const uint32_t t = id(w, lane);
  const auto start = reinterpret_cast<uintptr_t>(copy.to[lane]), from = reinterpret_cast<uintptr_t>(copy.from[lane]);
  if (Shadow *s = shadow(w, copy.to[lane]))
    for (uintptr_t at = start; at < start + copy.bytes; at += s->cell) cell(*s, at).write.time = by_[t].time;
  const Epoch me{t, by_[t].time, uint32_t(copy.in - grid_.program.code.data()), false, 0, 0};
  if (Shadow *s = copy.read[lane] ? shadow(w, copy.from[lane]) : nullptr)
    for (uintptr_t at = from; at < from + copy.read[lane]; at += s->cell) {
      if (!check_read(w, copy.in, lane, cell(*s, at), me, at, false)) return;
      add_reader(*s, cell(*s, at), me);
    }
}

// From here on the copies belong to the phase, like a bulk copy. The arrival orders nothing else of the lane.
bool Races::handed_over(Warp &w, const In *in, int lane, const Mbarrier &b) {
  const uint32_t t = id(w, lane);
  const Phase &phase = phases_[w.block->index][b.index];
  if (!knows(t, {phase.initializer, phase.initialized}))
    return fault(w, in, "nothing orders this arrival after the mbarrier.init", 1u << lane), false;
  for (const Copy &copy : w.copies) {
    if (!on(copy.mask & ~copy.handed, lane)) continue;
    const Epoch me{phase.component, b.phase + 1, uint32_t(copy.in - grid_.program.code.data()), false, 0, 0};
    const auto to = reinterpret_cast<uintptr_t>(copy.to[lane]), from = reinterpret_cast<uintptr_t>(copy.from[lane]);
    if (Shadow *s = shadow(w, copy.to[lane]))
      for (uintptr_t at = to; at < to + copy.bytes; at += s->cell) cell(*s, at).write = me;
    Shadow *s = copy.read[lane] ? shadow(w, copy.from[lane]) : nullptr;
    for (uintptr_t at = from; s && at < from + copy.read[lane]; at += s->cell) {
      Cell &c = cell(*s, at);
      if (c.write.any() && !knows(t, c.write))
        return report(w, copy.in, lane, c.write, "nothing orders this read of", "has written", at);
      add_reader(*s, c, me);
    }
  }
  return true;
}

bool Races::bulk_begins(Warp &w, const In *in, int lane, uint8_t *to, const uint8_t *from, uint32_t bytes,
                        const Mbarrier &b) {
  const uint32_t t = id(w, lane);
  const Phase &phase = phases_[w.block->index][b.index];
  const Epoch begun{phase.initializer, phase.initialized};
  if (!knows(t, begun) || !(phase.fenced || holds(by_[t].seen.async, begun)))
    return fault(w, in, "a bulk copy for an mbarrier whose mbarrier.init no fence has handed to it", 1u << lane), false;
  const Epoch me{phase.component, b.phase + 1, uint32_t(in - grid_.program.code.data()), false, 0, 0};
  const auto unseen = [&](const Epoch &e) { // by the async proxy, on behalf of this thread
    return e.any() && !(e.who >= count_ ? knows(t, e) : holds(by_[t].seen.async, e));
  };
  const auto why = [&](const Epoch &e) {
    return knows(t, e) ? "no fence.proxy.async comes before this bulk copy of" : "nothing orders this bulk copy of";
  };
  Shadow *target = shadow(w, to), *source = shadow(w, from);
  const auto start = reinterpret_cast<uintptr_t>(to), begin = reinterpret_cast<uintptr_t>(from);
  for (uintptr_t at = start; at < start + bytes; at += target->cell) {
    Cell &c = cell(*target, at);
    if (unseen(c.write)) return report(w, in, lane, c.write, why(c.write), "has written", at);
    for (int strong = 0; strong < 2; ++strong) {
      if (c.read[strong].any() && !c.many[strong] && !knows(t, c.read[strong]))
        return report(w, in, lane, c.read[strong], "nothing orders this bulk copy over", "has read", at);
      if (c.many[strong])
        for (const Epoch &r : c.many[strong]->all())
          if (r.any() && !knows(t, r))
            return report(w, in, lane, r, "nothing orders this bulk copy over", "has read", at);
      c.many[strong].reset();
      c.read[strong] = {};
    }
    c.write = me;
  }
  for (uintptr_t at = begin; source && at < begin + bytes; at += source->cell) {
    Cell &c = cell(*source, at);
    if (unseen(c.write)) return report(w, in, lane, c.write, why(c.write), "has written", at);
    add_reader(*source, c, me);
  }
  return true;
}

} // namespace ptx
