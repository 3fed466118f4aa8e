// From the address of a lane to memory of the process, with all checks.
#pragma once
#include "lanes.hpp"
#include "races.hpp"

namespace ptx {

// What an instruction does at an address. Bits of an access for the race detector, too.
enum Does : uint32_t { reads = 1, writes = 2, by_copy = 4 };

// "ld.global at 0x7f..: 4 bytes after the end of `cache`": names the nearest buffer.
[[gnu::cold]] void bad_address(Warp &w, const In *in, int lane, uint64_t address, uint32_t bytes, const char *why);

inline uint64_t address_of(const Warp &w, uint32_t at, bool wide, int lane) {
  return wide ? w.reg<uint64_t>(at)[lane] : w.reg<uint32_t>(at)[lane];
}

// The buffer that has these bytes, or null.
inline const Buffer *find(const Grid &grid, uint64_t address, uint64_t bytes) {
  for (uint32_t i = 0; i < grid.launch.buffer_count; ++i) {
    const Buffer &buffer = grid.launch.buffers[i];
    if (address - buffer.start < buffer.bytes && bytes <= buffer.bytes - (address - buffer.start)) return &buffer;
  }
  return nullptr;
}

// Where a lane's bytes lie; null after a fault, which stops the launch.
uint8_t *place(Warp &w, const In *in, Space space, int lane, uint64_t address, uint32_t bytes, uint32_t does);

// The places of lanes that are evenly spaced, all of them here.
struct Even {
  uint8_t *at;
  int64_t stride;
};

template <class A> inline bool evenly(const A *a, A &stride) {
  const A start = a[0], step = a[1] - a[0];
  A off = 0;
  LANES off |= a[i] ^ A(start + A(i) * step);
  stride = step;
  return off == 0;
}

// One check for all lanes; false where they have to be looked at one by one.
template <uint32_t Does> inline bool even(Warp &w, const In *in, uint32_t bytes, Even &found) {
  if (w.live != all_lanes || w.grid->launch.races) return false;
  const Flags f{in->flags};
  int64_t step;
  uint64_t start;
  if (f.wide()) {
    uint64_t s;
    const uint64_t *a = w.reg<uint64_t>(in->a);
    if (!evenly(a, s)) return false;
    start = a[0], step = int64_t(s);
  } else {
    uint32_t s;
    const uint32_t *a = w.reg<uint32_t>(in->a);
    if (!evenly(a, s)) return false;
    start = a[0], step = int32_t(s);
  }
  start += uint64_t(in->imm);
  if ((start | uint64_t(step)) & (bytes - 1)) return false;
  if (step > 1 << 20 || step < -(1 << 20)) return false;
  const uint64_t low = step < 0 ? start + uint64_t(31 * step) : start;
  const uint64_t span = uint64_t(31 * (step < 0 ? -step : step)) + bytes;
  if (f.space() == global) {
    const Buffer *buffer = find(*w.grid, low, span);
    if (!buffer || (Does & writes && !buffer->writable)) return false;
    found = {reinterpret_cast<uint8_t *>(start), step};
    return true;
  }
  if (f.space() == shared) {
    auto &memory = w.block->memory;
    if (low < shared_start || low - shared_start + span > memory.size()) return false;
    if (low < w.block->guard_end && low + span > w.block->guard_begin) return false; // near the mbarriers
    found = {memory.data() + (start - shared_start), step};
    return true;
  }
  return false;
}

// What is added to each lane's address, where all lanes are here and read in one buffer or in shared memory, however
// they are spaced. False where they have to be looked at one by one.
inline bool bounded(Warp &w, const In *in, uint32_t bytes, uint64_t &added) {
  const Flags f{in->flags};
  if (w.live != all_lanes || w.grid->launch.races || !f.wide()) return false;
  const uint64_t *a = w.reg<uint64_t>(in->a);
  uint64_t low = UINT64_MAX, high = 0, any = uint64_t(in->imm);
  LANES low = a[i] < low ? a[i] : low, high = a[i] > high ? a[i] : high, any |= a[i];
  low += uint64_t(in->imm), high += uint64_t(in->imm) + bytes;
  if (any & (bytes - 1) || high < low) return false;
  added = uint64_t(in->imm);
  if (f.space() == global) return find(*w.grid, low, high - low) != nullptr;
  const Block &block = *w.block;
  if (f.space() != shared || low < shared_start || high - shared_start > block.memory.size()) return false;
  if (low < block.guard_end && high > block.guard_begin) return false;
  added += reinterpret_cast<uint64_t>(block.memory.data()) - shared_start;
  return true;
}

} // namespace ptx
