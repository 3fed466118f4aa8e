// Instructions that the lanes of a warp execute together: shuffles, votes, barriers of a warp.
#include "lanes.hpp"
#include "races.hpp"

namespace ptx {
namespace {

// True if all member lanes are here; otherwise the group waits. at: the register of each lane's mask.
inline bool together(Warp &w, const In *in, uint32_t at) {
  uint32_t common = all_lanes;
  const uint32_t *masks = w.reg<uint32_t>(at);
  if (w.mask == all_lanes) {
    LANES common &= masks[i];
    if (common == all_lanes) return true;
  }
  for (const int lane : Each{w.mask})
    if (!on(masks[lane], lane)) return fault(w, in, "a lane that is not in its own member mask", 1u << lane), false;
  return gathered(w, in, at);
}

enum Way { from_below, from_above, across, chosen };

// shfl d|more[0], a, b, c, more[1]
template <Way Which> void shuffle(Warp &w, const In *in) {
  const uint32_t *more = &w.program->more[in->more];
  if (!together(w, in, more[1])) return;
  const int *b = w.reg<int>(in->b), *c = w.reg<int>(in->c);
  const uint32_t mask = w.mask, *masks = w.reg<uint32_t>(more[1]);
  alignas(64) uint32_t a[warp_size];
  alignas(64) int from[warp_size], valid[warp_size], member[warp_size];
  std::memcpy(a, w.reg<uint32_t>(in->a), sizeof a);
  LANES {
    const int by = b[i] & 31, segment = c[i] >> 8 & 31, lowest = i & segment, last = lowest | (c[i] & 31 & ~segment);
    const int j = Which == from_below   ? i - by
                  : Which == from_above ? i + by
                  : Which == across     ? i ^ by
                                        : lowest | (by & ~segment);
    valid[i] = Which == from_below ? j >= last : j <= last;
    from[i] = valid[i] ? j : i;
    member[i] = (masks[i] & mask) >> from[i] & 1;
  }
  const uint32_t apart = mask & ~pack(member);
  if (apart) return fault(w, in, "a shuffle from a lane that takes no part", apart);
  uint32_t *d = w.reg<uint32_t>(in->d);
  if (mask == all_lanes)
    permute(a, from, d);
  else
    for (const int lane : Each{mask}) d[lane] = a[from[lane]];
  if (more[0]) set_predicate<true>(w, more[0], pack(valid));
  GO_ON;
}

// Stores does(lane, its members that are here) as each lane's predicate at `at`, unless that is 0. False if it waits.
template <class F> bool by_members(Warp &w, const In *in, uint32_t at, F does) {
  if (!together(w, in, in->b)) return false;
  uint32_t found = 0;
  for (const int lane : Each{w.mask}) found |= uint32_t(does(lane, w.reg<uint32_t>(in->b)[lane] & w.mask)) << lane;
  if (at) set_predicate<true>(w, at, found);
  return true;
}

enum Kind { all, any, uni, ballot };

// vote d, a, b; each lane's vote is among its own mask.
template <Kind Which> void vote(Warp &w, const In *in) {
  const uint32_t yes = *w.reg<uint32_t>(in->a);
  if (!by_members(w, in, Which == ballot ? 0 : in->d, [&](int lane, uint32_t members) {
        const uint32_t said = yes & members;
        if (Which == ballot) w.reg<uint32_t>(in->d)[lane] = said;
        return Which == all ? said == members : Which == any ? said != 0 : said == 0 || said == members;
      }))
    return;
  GO_ON;
}

// redux d, a, b
template <class T, class F> void reduce(Warp &w, const In *in) {
  T a[warp_size];
  std::memcpy(a, w.reg<T>(in->a), sizeof a);
  if (!by_members(w, in, 0, [&](int lane, uint32_t members) {
        T sum = a[std::countr_zero(members)];
        for (const int other : Each{members & (members - 1)}) sum = F{}(sum, a[other]);
        w.reg<T>(in->d)[lane] = sum;
        return true;
      }))
    return;
  GO_ON;
}
template <class T, class F> void redux(Ops &ops, const std::string &name, F) { put(ops, name, reduce<T, F>); }

// match.any d, a, b and match.all d|more[0], a, b
template <class T, bool All> void match(Warp &w, const In *in) {
  T a[warp_size];
  std::memcpy(a, w.reg<T>(in->a), sizeof a);
  if (!by_members(w, in, All ? w.program->more[in->more] : 0, [&](int lane, uint32_t members) {
        uint32_t same = 0;
        for (const int other : Each{members}) same |= uint32_t(a[other] == a[lane]) << other;
        w.reg<uint32_t>(in->d)[lane] = All && same != members ? 0 : same;
        return same == members;
      }))
    return;
  GO_ON;
}

// d|more[0], b: the lowest lane of the members
void elect(Warp &w, const In *in) {
  if (!by_members(w, in, w.program->more[in->more], [&](int lane, uint32_t members) {
        if (in->d) w.reg<int>(in->d)[lane] = std::countr_zero(members);
        return lane == std::countr_zero(members);
      }))
    return;
  GO_ON;
}

void active(Warp &w, const In *in) {
  for (const int lane : Each{w.mask}) w.reg<uint32_t>(in->d)[lane] = w.mask;
  GO_ON;
}

void warp_barrier(Warp &w, const In *in) { // a: the member mask
  if (!together(w, in, in->a)) return;
  if (w.grid->races) w.grid->races->warp_barriers(w, w.mask, w.reg<uint32_t>(in->a));
  GO_ON;
}

} // namespace

void add_warp_wide(Ops &ops) {
  put(ops, "shfl.up.b32", shuffle<from_below>), put(ops, "shfl.down.b32", shuffle<from_above>);
  put(ops, "shfl.bfly.b32", shuffle<across>), put(ops, "shfl.idx.b32", shuffle<chosen>);
  put(ops, "vote.all.pred", vote<all>), put(ops, "vote.any.pred", vote<any>), put(ops, "vote.uni.pred", vote<uni>);
  put(ops, "vote.ballot.b32", vote<ballot>);
  const auto of = [&]<class T>(const std::string &t, T) {
    redux<T>(ops, "redux.add." + t, [](T a, T b) { return T(uint32_t(a) + uint32_t(b)); });
    redux<T>(ops, "redux.min." + t, [](T a, T b) { return a < b ? a : b; });
    redux<T>(ops, "redux.max." + t, [](T a, T b) { return a > b ? a : b; });
  };
  of("u32", uint32_t{}), of("s32", int32_t{});
  redux<uint32_t>(ops, "redux.and.b32", [](uint32_t a, uint32_t b) { return a & b; });
  redux<uint32_t>(ops, "redux.or.b32", [](uint32_t a, uint32_t b) { return a | b; });
  redux<uint32_t>(ops, "redux.xor.b32", [](uint32_t a, uint32_t b) { return a ^ b; });
  put(ops, "match.any.b32", match<uint32_t, false>), put(ops, "match.any.b64", match<uint64_t, false>);
  put(ops, "match.all.b32", match<uint32_t, true>), put(ops, "match.all.b64", match<uint64_t, true>);
  put(ops, "elect", elect), put(ops, "activemask.b32", active), put(ops, "bar.warp", warp_barrier);
}

bool meets_anywhere(const In *in) { // bar.warp: lanes may meet from different places, only the mask counts
  return in->run[0] == warp_barrier;
}

} // namespace ptx
