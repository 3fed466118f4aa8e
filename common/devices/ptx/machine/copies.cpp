// Asynchronous copies: cp.async in groups, cp.async.bulk with an mbarrier. They read their source late; with `strict`
// their target holds NaN until then.
#include "places.hpp"

#include <algorithm>

namespace ptx {

bool complete_bytes(Warp &w, const In *in, int lane, uint32_t address, uint32_t bytes);
bool complete_arrivals(Warp &w, const In *in, int lane, uint32_t address, uint32_t arrivals);

namespace {

void poison(uint8_t *at, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; ++i) at[i] = i % 2 ? 0xff : 0xa5; // 0xffa5: a NaN in bf16 and, twice, in fp32
}

// [a], [b]; more: offset of the source, bytes, and the register with the number of bytes read, or 0.
struct CopyAsync {
  static void run(Warp &w, const In *in) {
    const Flags f{in->flags};
    const uint32_t *more = &w.program->more[in->more], bytes = more[1];
    uint32_t rest = w.mask;
    while (rest) { // lanes with equally many committed groups share one copy
      const uint32_t group = w.committed[__builtin_ctz(rest)];
      Copy &copy = w.copies.emplace_back();
      copy = {0, group, bytes, in, {}, {}, {}, w.copied++, 0};
      for (uint32_t left = rest; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        if (w.committed[lane] != group) continue;
        const uint64_t to = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
        const uint64_t from = w.reg<uint64_t>(in->b)[lane] + uint64_t(int32_t(more[0]));
        const uint32_t read = more[2] ? w.reg<uint32_t>(more[2])[lane] : bytes;
        if (read > bytes) return fault(w, in, "cp.async reads more than it writes", 1u << lane);
        copy.to[lane] = place(w, in, f.space(), lane, to, bytes, writes);
        if (!copy.to[lane]) return;
        copy.from[lane] = read ? place(w, in, global, lane, from, bytes, reads) : nullptr;
        if (read && !copy.from[lane]) return;
        copy.read[lane] = uint8_t(read);
        copy.mask |= 1u << lane;
        if (w.grid->races && !w.grid->races->copy_begins(w, in, lane, copy.to[lane], bytes)) return;
        if (w.grid->launch.strict) poison(copy.to[lane], bytes);
      }
      rest &= ~copy.mask;
    }
    if (w.grid->launch.strict && w.grid->below(4) == 0) land(w, w.mask, 0);
    GO_ON;
  }
};

struct Commit {
  static void run(Warp &w, const In *in) {
    for (uint32_t left = w.mask; left; left &= left - 1) ++w.committed[__builtin_ctz(left)];
    GO_ON;
  }
};

struct WaitGroup { // imm: number of newest groups that may be in flight; -1: waits for all, committed or not
  static void run(Warp &w, const In *in) {
    land(w, w.mask, in->imm < 0 ? UINT32_MAX : uint32_t(in->imm));
    GO_ON;
  }
};

// [a]: a lane arrives when all its earlier copies have landed; without NoInc the phase takes one more arrival.
template <bool NoInc> struct ArriveCopied {
  template <bool M> static void run(Warp &w, const In *in) {
    const Flags f{in->flags};
    Block &block = *w.block;
    for (uint32_t left = w.mask; left;) { // lanes mostly name one barrier
      const int first = __builtin_ctz(left);
      const uint64_t at = address_of(w, in->a, f.wide(), first);
      const uint64_t address = at + uint64_t(in->imm) - (f.space() == generic ? shared_window : 0);
      Mbarrier *found = block.mbarrier(address);
      if (!found) return fault(w, in, "copies handed over to what is no mbarrier", 1u << first);
      uint32_t lanes = 0;
      for (uint32_t those = left; those; those &= those - 1) {
        const int lane = __builtin_ctz(those);
        if (address_of(w, in->a, f.wide(), lane) != at) continue;
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
    NEXT;
  }
};

// [a], [b], more: size, [barrier], offsets of source and barrier.
struct CopyBulk {
  static void run(Warp &w, const In *in) {
    const Flags f{in->flags};
    Block &block = *w.block;
    Grid &grid = *w.grid;
    const uint32_t *more = &w.program->more[in->more];
    for (uint32_t left = w.mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      uint64_t to = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
      const uint64_t from = w.reg<uint64_t>(in->b)[lane] + uint64_t(int32_t(more[2]));
      const uint32_t bytes = w.reg<uint32_t>(more[0])[lane];
      const uint64_t barrier = address_of(w, more[1], more[5], lane) + uint64_t(int32_t(more[4]));
      if (bytes == 0 || bytes % 16 || to % 16 || from % 16)
        return fault(w, in, "a bulk copy of " + std::to_string(bytes) + " bytes that are not aligned to 16",
                     1u << lane);
      Mbarrier *found = block.mbarrier(barrier);
      if (!found) return fault(w, in, "a bulk copy for what is no mbarrier", 1u << lane);
      uint8_t *target = nullptr;
      const uint8_t *source = nullptr;
      const uint64_t end = to + bytes;
      const bool near = to < block.guard_end && end > block.guard_begin;              // an mbarrier may lie in it
      for (uint64_t at = to; at < end; at += near || bytes == 16 ? 16 : bytes - 16) { // all of it, or both ends
        uint8_t *t = place(w, in, f.space(), lane, at, 16, writes);
        if (!t) return;
        if (!target) target = t;
      }
      if (const Buffer *b = find(grid, from, bytes); b) source = reinterpret_cast<const uint8_t *>(from);
      if (!source) return bad_address(w, in, lane, from, bytes, "a bulk copy from outside the buffers");
      if (grid.races && !grid.races->bulk_begins(w, in, lane, target, source, bytes, *found)) return;
      found->carries(w, in, lane);
      if (grid.launch.strict) poison(target, bytes);
      block.bulks.push_back({target, source, bytes, uint32_t(barrier), grid.turn + grid.below(24), in, &w});
      ++grid.in_flight;
    }
    GO_ON;
  }
};

// [b], more: size, nothing, offset of the source. Nothing but the checks.
struct PrefetchBulk {
  static void run(Warp &w, const In *in) {
    const uint32_t *more = &w.program->more[in->more];
    for (uint32_t left = w.mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      const uint64_t from = w.reg<uint64_t>(in->b)[lane] + uint64_t(int32_t(more[2]));
      const uint32_t bytes = w.reg<uint32_t>(more[0])[lane];
      if (bytes == 0 || bytes % 16 || from % 16)
        return fault(w, in, "a bulk prefetch of " + std::to_string(bytes) + " bytes that are not aligned to 16",
                     1u << lane);
      if (!find(*w.grid, from, bytes))
        return bad_address(w, in, lane, from, bytes, "a bulk prefetch from outside the buffers");
    }
    GO_ON;
  }
};

struct ProxyFence {
  static void run(Warp &w, const In *in) {
    if (w.grid->races) w.grid->races->proxy_fence(w);
    GO_ON;
  }
};
struct InitFence {
  static void run(Warp &w, const In *in) {
    if (w.grid->races) w.grid->races->init_fence(w);
    GO_ON;
  }
};
struct Fence {
  static void run(Warp &w, const In *in) {
    if (w.grid->races) w.grid->races->fence(w, Flags{in->flags}.scope());
    GO_ON;
  }
};

} // namespace

static void land(Warp &w, Copy &copy, int lane) {
  const uint32_t read = copy.read[lane];
  if (read) std::memcpy(copy.to[lane], copy.from[lane], read);
  if (read < copy.bytes) std::memset(copy.to[lane] + read, 0, copy.bytes - read);
  if (w.grid->races && !on(copy.handed, lane)) w.grid->races->copy_lands(w, copy, lane);
  copy.mask &= ~(1u << lane);
}

void land(Warp &w, uint32_t mask, uint32_t newest) {
  for (Copy &copy : w.copies) {
    for (uint32_t left = copy.mask & mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      // Copies of the uncommitted group land only for wait_all.
      if (newest != UINT32_MAX && (copy.group == w.committed[lane] || w.committed[lane] - copy.group <= newest))
        continue;
      land(w, copy, lane);
    }
  }
  while (!w.copies.empty() && w.copies.front().mask == 0) w.copies.pop_front();
}

void land(Block &block, size_t number) {
  const Bulk bulk = block.bulks[number];
  block.bulks.erase(block.bulks.begin() + std::ptrdiff_t(number));
  --block.grid->in_flight;
  if (bulk.lanes) {
    Warp &w = *bulk.warp;
    for (Copy &copy : w.copies)
      for (uint32_t left = copy.number < bulk.before ? copy.mask & bulk.lanes : 0; left; left &= left - 1)
        land(w, copy, __builtin_ctz(left));
    while (!w.copies.empty() && w.copies.front().mask == 0) w.copies.pop_front();
    complete_arrivals(w, bulk.in, __builtin_ctz(bulk.lanes), bulk.barrier, uint32_t(__builtin_popcount(bulk.lanes)));
    return;
  }
  std::memcpy(bulk.to, bulk.from, bulk.bytes);
  block.grid->touch(bulk.to, 1);
  complete_bytes(*bulk.warp, bulk.in, 0, bulk.barrier, bulk.bytes);
}

void add_copies(Ops &ops) {
  put<CopyAsync>(ops, "cp.async"), put<Commit>(ops, "cp.async.commit_group"),
      put<WaitGroup>(ops, "cp.async.wait_group");
  put<ArriveCopied<false>>(ops, "cp.async.mbarrier.arrive"),
      put<ArriveCopied<true>>(ops, "cp.async.mbarrier.arrive.noinc");
  put<CopyBulk>(ops, "cp.async.bulk");
  put<PrefetchBulk>(ops, "cp.async.bulk.prefetch");
  put<ProxyFence>(ops, "fence.proxy.async"), put<InitFence>(ops, "fence.mbarrier_init"), put<Fence>(ops, "fence");
}

} // namespace ptx
