// Branches, ends, and reconvergence of diverged lanes.
#include "places.hpp"

namespace ptx {

void fault(Warp &w, const In *in, const std::string &text, uint32_t mask) {
  w.grid->fail(faulted, w, in, text, mask ? mask : w.mask);
}

// Lanes wait at an instruction of several lanes until all their members are there, with an equal mask. Ended lanes do
// not count.
bool gathered(Warp &w, const In *in, uint32_t masks) {
  uint32_t members[warp_size];
  const auto ask = [&](uint32_t lanes, uint32_t at) {
    for (const int lane : Each{lanes}) members[lane] = at ? w.reg<uint32_t>(at)[lane] : all_lanes;
  };
  const auto incomplete = [&](uint32_t lanes, uint32_t here) { // those of the lanes, which are here, that lack a member
    uint32_t found = 0;
    for (uint32_t rest = lanes, alike = 0; rest; rest &= ~alike) {
      const uint32_t all = members[std::countr_zero(rest)];
      alike = 0;
      for (const int lane : Each{here}) alike |= uint32_t(members[lane] == all) << lane;
      if (all & w.live & ~alike) found |= alike & lanes;
    }
    return found;
  };
  if (w.mask == all_lanes) { // the usual case, of a whole warp with one mask, in a loop that a compiler vectorizes
    uint32_t others = 0;
    for (int lane = 0; masks && lane < warp_size; ++lane)
      others |= w.reg<uint32_t>(masks)[lane] ^ *w.reg<uint32_t>(masks);
    if (!others) return true;
  }
  ask(w.mask, masks);
  if (!incomplete(w.mask, w.mask)) return true;
  park(w, in, Wait::lanes);
  const bool anywhere = meets_anywhere(in);
  if (!anywhere) uncount(w, in);
  const auto waits = [&](const Group &g) {
    return g.wait == Wait::lanes && (g.ip == in || (anywhere && meets_anywhere(g.ip)));
  };
  uint32_t here = 0;
  for (const Group &g : w.groups)
    if (waits(g)) here |= g.mask, ask(g.mask, anywhere ? g.ip->a : masks);
  for (size_t i = w.groups.size(); i-- > 0;) {
    const Group g = w.groups[i];
    if (!waits(g)) continue;
    const uint32_t left = incomplete(g.mask, here), met = g.mask & ~left;
    w.groups[i].mask = left;
    if (met) w.groups.push_back({met, g.ip + anywhere, Wait::ready});
    if (w.grid->races && anywhere) w.grid->races->warp_barriers(w, met, members);
  }
  std::erase_if(w.groups, [](const Group &g) { return g.mask == 0; });
  return false;
}

void at_label(Warp &w, const In *in) {
  const bool strict = w.grid->launch.strict;
  for (size_t i = 0; i < w.groups.size(); ++i) {
    const Group &g = w.groups[i];
    if (int(i) == w.current || g.wait != Wait::ready) continue;
    if (g.ip <= in || (strict && w.grid->below(4) == 0)) return park(w, in, Wait::ready);
  }
  return in->inside(w, in);
}

namespace {

template <bool M> void jump(Warp &w, const In *in) {
  const In *to = &w.program->code[size_t(in->imm)];
  if (--w.fuel < 0) return park(w, to, Wait::ready);
  return to->run[M](w, to);
}

template <bool Unless, bool M> void branch(Warp &w, const In *in) { // a: the predicate
  const uint32_t p = *w.reg<uint32_t>(in->a), taken = (Unless ? ~p : p) & w.mask;
  if (taken == 0) NEXT;
  if (taken == w.mask) return jump<M>(w, in);
  if constexpr (!M)
    for (uint32_t &lanes : w.beyond) lanes &= ~w.live; // until here they were together
  w.groups[size_t(w.current)].mask &= ~taken;
  park(w, in + 1, Wait::ready);
  w.groups.push_back({taken, &w.program->code[size_t(in->imm)], Wait::ready});
}

void end(Warp &w, const In *in) {
  for (const Copy &copy : w.copies) // those handed over to an mbarrier are waited for there
    if (const uint32_t own = copy.mask & ~copy.handed & w.mask)
      return fault(w, in, "a thread ends while its cp.async is in flight", own);
  w.live &= ~w.mask;
  w.groups.erase(w.groups.begin() + w.current);
  w.current = -1;
  for (Group &g : w.groups) { // fewer lanes are still to come
    if (g.wait != Wait::lanes) continue;
    g.wait = Wait::ready, w.mask = g.mask;
    if (meets_anywhere(g.ip)) uncount(w, g.ip);
  }
  ended(w);
}

void trap(Warp &w, const In *in) { w.grid->fail(trapped, w, in, "", w.mask); }

void failed_assertion(Warp &w, const In *in) { // a: generic address of its text
  std::string text;
  for (uint64_t at = first<uint64_t>(w, in->a); text.size() < 1000 && find(*w.grid, at, 1); ++at) {
    const char letter = *reinterpret_cast<const char *>(at);
    if (!letter) break;
    text += letter;
  }
  w.grid->fail(trapped, w, in, "the assertion " + text + " failed", w.mask);
}

void sleep(Warp &w, const In *in) {
  if (w.grid->polls_on(w)) GO_ON;
  w.grid->sleep(w, in + 1);
}

void nothing(Warp &w, const In *in) { GO_ON; }

void clock(Warp &w, const In *in) { // imm: bytes; advances with the scheduler's turns, from one launch to the next
  const uint64_t now = (w.grid->earlier + w.grid->turn) * 64 + 1024;
  if (in->imm == 8)
    each<true, uint64_t>(w, in->d, [=](int) { return now; });
  else
    each<true, uint32_t>(w, in->d, [=](int) { return uint32_t(now); });
  GO_ON;
}

} // namespace

void add_control(Ops &ops) {
  put(ops, "bra", jump<false>, jump<true>);
  put(ops, "bra.if", branch<false, false>, branch<false, true>);
  put(ops, "bra.unless", branch<true, false>, branch<true, true>);
  put(ops, "exit", end), put(ops, "trap", trap), put(ops, "trap.assert", failed_assertion);
  put(ops, "nanosleep", sleep), put(ops, "nop", nothing), put(ops, "clock", clock);
}

} // namespace ptx
