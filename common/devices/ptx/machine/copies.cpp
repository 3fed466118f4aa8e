// Asynchronous copies: cp.async in groups, cp.async.bulk with an mbarrier. They read their source late; with `strict`
// their target holds NaN until then.
#include "places.hpp"

namespace ptx {

void complete(const Bulk &landed);

namespace {

void poison(uint8_t *at, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; ++i) at[i] = i % 2 ? 0xff : 0xa5; // 0xffa5: a NaN in bf16 and, twice, in fp32
}

// A lane's bytes are there, by now or already.
void bring(Copy &copy, int lane) {
  if (on(copy.landed, lane)) return;
  const uint32_t read = copy.read[lane];
  if (read) std::memcpy(copy.to[lane], copy.from[lane], read);
  if (read < copy.bytes) std::memset(copy.to[lane] + read, 0, copy.bytes - read);
  copy.landed |= 1u << lane;
}

// [a], [b]; more: offset of the source, bytes, and the register with the number of bytes read, or 0.
void copy_async(Warp &w, const In *in) {
  const uint32_t *more = &w.program->more[in->more], bytes = more[1];
  uint32_t rest = w.mask;
  while (rest) { // lanes with equally many committed groups share one copy
    const uint32_t group = w.committed[std::countr_zero(rest)];
    Copy &copy = w.copies.emplace_back(Copy{0, group, bytes, in, {}, {}, {}, w.copied++, 0});
    for (const int lane : Each{rest}) {
      if (w.committed[lane] != group) continue;
      const uint64_t from = w.reg<uint64_t>(in->b)[lane] + uint64_t(int32_t(more[0]));
      const uint32_t read = more[2] ? w.reg<uint32_t>(more[2])[lane] : bytes;
      if (read > bytes) return fault(w, in, "cp.async reads more than it writes", 1u << lane);
      copy.to[lane] = place(w, in, lane, bytes, writes);
      if (!copy.to[lane]) return;
      const bool aligned = from % bytes == 0;
      if (read && (!aligned || !find(*w.grid, from, read)))
        return bad_address(w, in, lane, from, read, aligned ? "outside the buffers" : "misaligned");
      copy.from[lane] = read ? reinterpret_cast<const uint8_t *>(from) : nullptr;
      copy.read[lane] = uint8_t(read);
      copy.mask |= 1u << lane;
      if (w.grid->races && !w.grid->races->copy_begins(w, copy, lane)) return;
      if (w.grid->launch.strict) poison(copy.to[lane], bytes);
    }
    rest &= ~copy.mask;
  }
  if (w.grid->launch.strict && w.grid->below(4) == 0)
    for (Copy &copy : w.copies)
      for (const int lane : Each{copy.mask & w.mask}) bring(copy, lane);
  GO_ON;
}

void commit(Warp &w, const In *in) {
  for (const int lane : Each{w.mask}) ++w.committed[lane];
  GO_ON;
}

// imm: number of newest groups that may be in flight; -1: waits for all, committed or not.
void wait_group(Warp &w, const In *in) {
  land(w, w.mask, in->imm < 0 ? UINT32_MAX : uint32_t(in->imm));
  GO_ON;
}

// [a]: a lane arrives when all its earlier copies have landed; without NoInc the phase takes one more arrival.
template <bool NoInc> void arrive_copied(Warp &w, const In *in) {
  Block &block = *w.block;
  for (uint32_t left = w.mask; left;) { // lanes mostly name one barrier
    const int first = std::countr_zero(left);
    const uint64_t address = shared_address(w, in, first);
    Mbarrier *found = block.mbarrier(address);
    if (!found) return fault(w, in, "copies handed over to what is no mbarrier", 1u << first);
    uint32_t lanes = 0;
    for (const int lane : Each{left}) {
      if (shared_address(w, in, lane) != address) continue;
      lanes |= 1u << lane;
      if (!NoInc) ++found->pending;
      if (++found->promised > found->pending)
        return fault(w, in, "more arrivals than the mbarrier's phase takes", 1u << lane);
      if (w.grid->races && !w.grid->races->handed_over(w, in, lane, *found)) return;
    }
    found->carries(w, in, first);
    for (Copy &copy : w.copies) copy.handed |= copy.mask & lanes;
    block.bulks.push_back(
        {nullptr, nullptr, 0, uint32_t(address), w.grid->turn + w.grid->below(24), in, &w, lanes, w.copied});
    ++w.grid->in_flight;
    left &= ~lanes;
  }
  GO_ON;
}

// The checked source [b] of a lane's bulk copy or prefetch; null after a fault.
const uint8_t *bulk_source(Warp &w, const In *in, int lane, uint64_t to, const std::string &what) {
  const uint32_t *more = &w.program->more[in->more], bytes = w.reg<uint32_t>(more[0])[lane];
  const uint64_t from = w.reg<uint64_t>(in->b)[lane] + uint64_t(int32_t(more[2]));
  if (bytes == 0 || bytes % 16 || to % 16 || from % 16)
    fault(w, in, "a bulk " + what + " of " + std::to_string(bytes) + " bytes that are not aligned to 16", 1u << lane);
  else if (!find(*w.grid, from, bytes))
    bad_address(w, in, lane, from, bytes, ("a bulk " + what + " from outside the buffers").c_str());
  else
    return reinterpret_cast<const uint8_t *>(from);
  return nullptr;
}

// [a], [b], more: size, [barrier], offsets of source and barrier.
void copy_bulk(Warp &w, const In *in) {
  const Flags f{in->flags};
  Block &block = *w.block;
  Grid &grid = *w.grid;
  const uint32_t *more = &w.program->more[in->more];
  for (const int lane : Each{w.mask}) {
    const uint64_t to = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
    const uint8_t *source = bulk_source(w, in, lane, to, "copy");
    if (!source) return;
    const uint32_t bytes = w.reg<uint32_t>(more[0])[lane];
    const uint64_t barrier = address_of(w, more[1], more[5], lane) + uint64_t(int32_t(more[4]));
    Mbarrier *found = block.mbarrier(barrier);
    if (!found) return fault(w, in, "a bulk copy for what is no mbarrier", 1u << lane);
    uint8_t *target = nullptr;
    const uint64_t end = to + bytes;
    const bool near = to < block.guard_end && end > block.guard_begin;              // it may cover an mbarrier
    for (uint64_t at = to; at < end; at += near || bytes == 16 ? 16 : bytes - 16) { // check all of it, or both ends
      uint8_t *t = place(w, in, f.space(), lane, at, 16, writes);
      if (!t) return;
      if (!target) target = t;
    }
    if (grid.races && !grid.races->bulk_begins(w, in, lane, target, source, bytes, *found)) return;
    found->carries(w, in, lane);
    if (grid.launch.strict) poison(target, bytes);
    block.bulks.push_back({target, source, bytes, uint32_t(barrier), grid.turn + grid.below(24), in, &w});
    ++grid.in_flight;
  }
  GO_ON;
}

// [b], more: size, nothing, offset of the source. Nothing but the checks.
void prefetch_bulk(Warp &w, const In *in) {
  for (const int lane : Each{w.mask})
    if (!bulk_source(w, in, lane, 0, "prefetch")) return;
  GO_ON;
}

template <auto Does> void fence(Warp &w, const In *in) {
  if (w.grid->races) Does(*w.grid->races, w, in);
  GO_ON;
}

} // namespace

static void land(Warp &w, Copy &copy, int lane) {
  bring(copy, lane);
  if (w.grid->races && !on(copy.handed, lane)) w.grid->races->copy_lands(w, copy, lane);
  copy.mask &= ~(1u << lane);
}

void land(Warp &w, uint32_t mask, uint32_t newest) {
  for (Copy &copy : w.copies)
    for (const int lane : Each{copy.mask & mask}) {
      const uint32_t group = w.committed[lane]; // its copies are not committed and land only for wait_all
      if (newest == UINT32_MAX || (copy.group != group && group - copy.group > newest)) land(w, copy, lane);
    }
  while (!w.copies.empty() && w.copies.front().mask == 0) w.copies.pop_front();
}

void land(Block &block, size_t number) {
  const Bulk bulk = block.bulks[number];
  block.bulks.erase(block.bulks.begin() + std::ptrdiff_t(number));
  --block.grid->in_flight;
  Warp &w = *bulk.warp;
  for (Copy &copy : w.copies)
    for (const int lane : Each{copy.number < bulk.before ? copy.mask & bulk.lanes : 0}) land(w, copy, lane);
  while (!w.copies.empty() && w.copies.front().mask == 0) w.copies.pop_front();
  if (bulk.bytes) std::memcpy(bulk.to, bulk.from, bulk.bytes), block.grid->touch(bulk.to, 1);
  complete(bulk);
}

void add_copies(Ops &ops) {
  put(ops, "cp.async", copy_async);
  put(ops, "cp.async.commit_group", commit), put(ops, "cp.async.wait_group", wait_group);
  put(ops, "cp.async.mbarrier.arrive", arrive_copied<false>);
  put(ops, "cp.async.mbarrier.arrive.noinc", arrive_copied<true>);
  put(ops, "cp.async.bulk", copy_bulk), put(ops, "cp.async.bulk.prefetch", prefetch_bulk);
  put(ops, "fence.proxy.async",
      fence<[](Races &races, Warp &w, const In *in) { races.proxy_fence(w, Flags{in->flags}.space()); }>);
  put(ops, "fence.mbarrier_init", fence<[](Races &races, Warp &w, const In *) { races.init_fence(w); }>);
  put(ops, "fence", fence<[](Races &races, Warp &w, const In *in) { races.fence(w, Flags{in->flags}); }>);
}

} // namespace ptx
