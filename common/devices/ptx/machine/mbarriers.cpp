// mbarrier: barriers in shared memory.
#include "places.hpp"

namespace ptx {
namespace {

std::string at(uint64_t address) { return " at shared address " + std::to_string(address); }

struct Found {
  uint32_t address;
  Mbarrier *barrier;
};

// The barrier at a lane's address, or null after a fault.
Found barrier_of(Warp &w, const In *in, int lane) {
  const uint64_t address = shared_address(w, in, lane);
  Mbarrier *found = w.block->mbarrier(address);
  if (!found) fault(w, in, "there is no initialized mbarrier" + at(address), 1u << lane);
  return {uint32_t(address), found};
}

// Updates the phase's pending arrivals and bytes, and completes it when none are left. False after a fault.
bool changed(Warp &w, const In *in, int lane, Found f, uint32_t arrivals, int64_t bytes) {
  Mbarrier &b = *f.barrier;
  if (arrivals > b.pending) return fault(w, in, "more arrivals than the mbarrier's phase takes", 1u << lane), false;
  b.pending -= arrivals;
  b.bytes += bytes;
  if (b.bytes > (1 << 20) - 1 || b.bytes < -(1 << 20) + 1)
    return fault(w, in, "an mbarrier waits for " + std::to_string(b.bytes) + " bytes", 1u << lane), false;
  if (b.pending || b.bytes) return true;
  if (w.grid->races) w.grid->races->phase_over(*w.block, b);
  ++b.phase, b.pending = b.expected;
  w.grid->touch(w.block->memory.data() + (f.address - shared_start), 8);
  return true;
}

// [a], b
void init(Warp &w, const In *in) {
  for (const int lane : Each{w.mask}) {
    const uint32_t count = w.reg<uint32_t>(in->b)[lane];
    const uint8_t *word = place(w, in, lane, 8, writes | by_copy);
    if (!word) return;
    if (count == 0 || count >= 1 << 20) return fault(w, in, "an mbarrier for " + std::to_string(count), 1u << lane);
    const auto key = uint32_t(shared_address(w, in, lane));
    if (w.block->mbarrier(key)) return fault(w, in, "a second mbarrier.init" + at(key), 1u << lane);
    w.block->guard_begin = std::min(w.block->guard_begin, key);
    w.block->guard_end = std::max(w.block->guard_end, key + 8);
    auto &all = w.block->mbarriers;
    if (all.size() <= key / 8) all.resize(key / 8 + 1);
    all[key / 8] = std::make_unique<Mbarrier>(Mbarrier{count, count, 0, 0, w.block->initialized++});
    if (w.grid->races && !w.grid->races->init(w, in, lane, word)) return;
  }
  GO_ON;
}

void invalidate(Warp &w, const In *in) {
  for (const int lane : Each{w.mask}) {
    const Found found = barrier_of(w, in, lane);
    if (!found.barrier || !waited_for_copies(*found.barrier)) return;
    w.block->mbarriers[found.address / 8].reset();
  }
  GO_ON;
}

// d, [a], b: b arrivals, or one with b expected bytes (expect_tx); d gets the phase.
template <bool Arrives, bool Bytes, bool Drops> void arrive(Warp &w, const In *in) {
  for (const int lane : Each{w.mask}) {
    const Found found = barrier_of(w, in, lane);
    if (!found.barrier) return;
    Mbarrier &b = *found.barrier;
    const uint32_t number = in->b ? w.reg<uint32_t>(in->b)[lane] : 1;
    if (in->d) w.reg<uint64_t>(in->d)[lane] = b.phase;
    if (w.grid->races && !w.grid->races->arrive(w, in, lane, b)) return;
    if (Drops) b.expected -= Bytes ? 1 : number;
    if (!changed(w, in, lane, found, Arrives ? (Bytes ? 1 : number) : 0, Bytes ? number : 0)) return;
  }
  GO_ON;
}

// d, [a], b: b is the parity of a phase, or the phase returned by an arrival.
template <bool Parity> void test(Warp &w, const In *in) {
  using Phase = std::conditional_t<Parity, uint32_t, uint64_t>;
  uint32_t over = 0;
  for (uint32_t left = w.mask, same; left; left &= ~same) { // lanes mostly wait for one phase
    const int lane = std::countr_zero(left);
    const Found found = barrier_of(w, in, lane);
    if (!found.barrier) return;
    const auto equal = [lane, b = w.reg<Phase>(in->b)](const auto *a) { // lanes with the same registers
      alignas(64) int32_t both[warp_size];
      LANES both[i] = a[i] == a[lane] && b[i] == b[lane];
      return pack(both);
    };
    same = (Flags{in->flags}.wide() ? equal(w.reg<uint64_t>(in->a)) : equal(w.reg<uint32_t>(in->a))) & left;
    const Phase phase = w.reg<Phase>(in->b)[lane];
    if (Parity && phase > 1) return fault(w, in, "a parity of " + std::to_string(phase), 1u << lane);
    const uint32_t now = found.barrier->phase;
    const bool done = Parity ? (now & 1) != phase : now != phase;
    const void *word = w.block->memory.data() + (found.address - shared_start);
    if (!done && w.grid->would_sleep(w, lane, word)) return w.grid->sleep(w, in);
    if (!done) w.grid->look(w, lane, word);
    if (done && w.grid->races)
      for (const int each : Each{same})
        if (!w.grid->races->waited(w, in, each, *found.barrier)) return;
    if (done) over |= same, found.barrier->seen_over = now;
  }
  set_predicate<true>(w, in->d, over);
  GO_ON;
}

} // namespace

bool waited_for_copies(const Mbarrier &b) {
  if (b.carried <= b.seen_over) return true;
  return fault(*b.copier, b.copy, "the block ends, or its mbarrier, and no thread has waited for this copy", b.lane),
         false;
}

void complete(const Bulk &landed) {
  Warp &w = *landed.warp;
  const int lane = landed.lanes ? std::countr_zero(landed.lanes) : 0;
  Mbarrier *found = w.block->mbarrier(landed.barrier);
  if (!found) return fault(w, landed.in, "the mbarrier of a copy has gone", 1u << lane);
  const auto arrivals = uint32_t(std::popcount(landed.lanes));
  found->promised -= arrivals;
  changed(w, landed.in, lane, {landed.barrier, found}, arrivals, -int64_t(landed.bytes));
}

void add_mbarriers(Ops &ops) {
  put(ops, "mbarrier.init", init), put(ops, "mbarrier.inval", invalidate);
  put(ops, "mbarrier.arrive", arrive<true, false, false>), put(ops, "mbarrier.arrive_drop", arrive<true, false, true>);
  put(ops, "mbarrier.arrive.expect_tx", arrive<true, true, false>);
  put(ops, "mbarrier.expect_tx", arrive<false, true, false>);
  put(ops, "mbarrier.wait.parity", test<true>), put(ops, "mbarrier.wait", test<false>);
}

} // namespace ptx
