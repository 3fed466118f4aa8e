// The race detector's checks of asynchronous copies.
#include "places.hpp"

namespace ptx {

bool Races::copy_begins(Warp &w, const In *in, int lane, uint8_t *to, uint32_t bytes) {
  Access a = access(w, in, 1u << lane, 0, false);
  a.me.time = in_flight;
  return cells(w, to, bytes, [&](Cell &c, uintptr_t at) { return check_write(a, c, at, nullptr); });
}

void Races::copy_lands(Warp &w, const Copy &copy, int lane) {
  const Access a = access(w, copy.in, 1u << lane, 0, false);
  cells(w, copy.to[lane], copy.bytes, [&](Cell &c, uintptr_t) { return c.write.time = a.me.time, true; });
  cells(w, copy.from[lane], copy.read[lane],
        [&](Cell &c, uintptr_t at) { return check_read(a, c, at, false) && add_reader(a, c); });
}

// An access on behalf of a lane that belongs to the mbarrier's phase.
Races::Access Races::of_phase(Warp &w, const In *in, int lane, const Mbarrier &b) const {
  Access a = access(w, in, 1u << lane, 0, false);
  a.me.who = phases_[w.block->index][b.index].component, a.me.lanes = 1, a.me.time = b.phase + 1;
  return a;
}

// From here on the copies belong to the phase, like a bulk copy. The arrival orders nothing else of the lane.
bool Races::handed_over(Warp &w, const In *in, int lane, const Mbarrier &b) {
  if (!phase_for(w, in, lane, b, "arrival")) return false;
  for (const Copy &copy : w.copies) {
    if (!on(copy.mask & ~copy.handed, lane)) continue;
    const Access a = of_phase(w, copy.in, lane, b);
    cells(w, copy.to[lane], copy.bytes, [&](Cell &c, uintptr_t) { return c.write = a.me, true; });
    if (!cells(w, copy.from[lane], copy.read[lane], [&](Cell &c, uintptr_t at) {
          const bool known = !c.write.any() || knows(a, c.write);
          return (known || report(a, c.write, "nothing orders this read of", "has written", at)) && add_reader(a, c);
        }))
      return false;
  }
  return true;
}

bool Races::bulk_begins(Warp &w, const In *in, int lane, uint8_t *to, const uint8_t *from, uint32_t bytes,
                        const Mbarrier &b) {
  const Phase *phase = phase_for(w, in, lane, b, "bulk copy");
  if (!phase) return false;
  const Access a = of_phase(w, in, lane, b);
  const auto *async = by_[a.one].seen.async.get();
  if (!phase->fenced && !holds(async, phase->initializer, phase->initialized))
    by_letter(a, "no fence has handed the mbarrier.init to the async proxy before this bulk copy");
  const auto written = [&](Cell &c, uintptr_t at) { // as the async proxy sees it, on behalf of this thread
    const Epoch &e = c.write;
    if (!e.any() || (e.who >= count_ ? knows(a, e) : holds(async, e.thread(), e.time))) return true;
    return report(
        a, e, knows(a, e) ? "no fence.proxy.async comes before this bulk copy of" : "nothing orders this bulk copy of",
        "has written", at);
  };
  return cells(w, to, bytes,
               [&](Cell &c, uintptr_t at) {
                 if (!written(c, at)) return false;
                 for (const Epoch &r : c.reads())
                   if (r.any() && !knows(a, r) && !report(a, r, "nothing orders this bulk copy over", "has read", at))
                     return false;
                 c.forget_reads();
                 c.write = a.me;
                 return true;
               }) &&
         cells(w, from, bytes, [&](Cell &c, uintptr_t at) { return written(c, at) && add_reader(a, c); });
}

} // namespace ptx
