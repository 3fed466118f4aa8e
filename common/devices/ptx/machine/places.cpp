// Checks of addresses: alignment, the window, the buffer.
#include "places.hpp"

#include <cstdio>

namespace ptx {

void bad_address(Warp &w, const In *in, int lane, uint64_t address, uint32_t bytes, const char *why) {
  char text[200];
  snprintf(text, sizeof text, "%s: %u bytes at 0x%llx", why, bytes, (unsigned long long)address);
  std::string report = text;
  const Buffer *nearest = nullptr;
  uint64_t best = 1 << 20;
  for (uint32_t i = 0; i < w.grid->launch.buffer_count; ++i) {
    const Buffer &b = w.grid->launch.buffers[i];
    const uint64_t end = b.start + b.bytes;
    const uint64_t away = address < b.start ? b.start - address : address >= end ? address - end + 1 : 0;
    if (away < best) best = away, nearest = &b;
  }
  if (nearest) {
    const uint64_t end = nearest->start + nearest->bytes;
    const bool before = address < nearest->start, after = address >= end;
    report += ", " + std::to_string(before ? nearest->start - address : address - (after ? end : nearest->start)) +
              " bytes " +
              (before  ? "before"
               : after ? "after the end of"
                       : "into") +
              " the " + nearest->name + " buffer";
  }
  fault(w, in, report, 1u << lane);
}

uint8_t *odd_place(Warp &w, const In *in, Space space, int lane, uint64_t address, uint32_t bytes, uint32_t does) {
  const auto wrong = [&](const char *why) -> uint8_t * {
    bad_address(w, in, lane, address, bytes, why);
    return nullptr;
  };
  if (address & (bytes - 1)) return wrong("misaligned");
  if (space == generic) {
    if (address - shared_window < window_bytes)
      space = shared, address -= shared_window;
    else if (address - local_window < window_bytes)
      space = local, address -= local_window;
    else
      space = global;
  }
  if (space == shared) {
    Block &block = *w.block;
    const uint64_t at = address - shared_start;
    if (address < shared_start || at + bytes > block.memory.size())
      return wrong(("outside shared memory, " + std::to_string(block.memory.size()) + " B from 0x400 on").c_str());
    if (!(does & by_copy) && address < block.guard_end && address + bytes > block.guard_begin)
      for (uint64_t word = address & ~7ull; word < address + bytes; word += 8)
        if (block.mbarrier(word))
          return wrong(does & writes ? "a store over an mbarrier" : "a plain load of an mbarrier");
    return block.memory.data() + at;
  }
  if (space == local) {
    const uint64_t at = address - local_start;
    if (address < local_start || at + bytes > w.program->local_bytes) return wrong("outside local memory");
    return w.local + uint64_t(lane) * w.program->local_bytes + at;
  }
  const Buffer *buffer = find(*w.grid, address, bytes);
  if (!buffer) return wrong("outside the buffers");
  if (does & writes && !buffer->writable) return wrong("a write to read-only memory");
  return reinterpret_cast<uint8_t *>(address);
}

bool places(Warp &w, const In *in, uint32_t bytes, uint32_t does, uint8_t **at) {
  for (const int lane : Each{w.mask})
    if (at[lane] = place(w, in, lane, bytes, does); !at[lane]) return false;
  return true;
}

namespace {

constexpr uint32_t longest_step = 1 << 16; // bytes from lane to lane, so that 31 steps do not wrap around

// True if each lane's address is `step` bytes after the previous lane's.
template <class A> inline bool in_steps(const A *a, A step) {
  typedef A Line __attribute__((vector_size(64)));
  constexpr int each = 64 / sizeof(A);
  Line count, off = {};
#pragma GCC unroll 16
  for (int i = 0; i < each; ++i) count[i] = A(i);
  Line expected = a[0] + count * step;
#pragma GCC unroll 4
  for (int k = 0; k < warp_size; k += each) {
    Line here;
    std::memcpy(&here, a + k, sizeof here);
    off |= here ^ expected;
    expected += each * step;
  }
  return all_zero(off);
}

// Spacing of the addresses, and the first and the last of them; unknown if one is not aligned.
template <class A> Spacing spacing(const A *a, uint32_t bytes, uint64_t &low, uint64_t &high) {
  const A step = a[1] - a[0];
  if (step <= longest_step && in_steps<A>(a, step)) {
    low = a[0], high = low + 31 * uint64_t(step);
    return (low | step) & (bytes - 1) ? unknown : step == bytes ? in_a_row : step == 0 ? the_same : apart;
  }
  A least = a[0], most = a[0], any = 0;
  LANES least = a[i] < least ? a[i] : least, most = a[i] > most ? a[i] : most, any |= a[i];
  low = least, high = most;
  return any & (bytes - 1) ? unknown : apart;
}

} // namespace

Lanes all_places(Warp &w, const In *in, uint32_t bytes, uint32_t does) {
  const Flags f{in->flags};
  const auto offset = uint64_t(in->imm);
  if (w.mask != all_lanes || w.grid->launch.races || f.strong() || offset & (bytes - 1)) return {0, unknown};
  uint64_t low, high;
  const Spacing found =
      f.wide() ? spacing(w.reg<uint64_t>(in->a), bytes, low, high) : spacing(w.reg<uint32_t>(in->a), bytes, low, high);
  low += offset, high += offset + bytes;
  if (found == unknown || high < low) return {0, unknown};
  if (f.space() == global) {
    const Buffer *buffer = find(*w.grid, low, high - low);
    return {offset, buffer && (buffer->writable || !(does & writes)) ? found : unknown};
  }
  Block &block = *w.block;
  if (f.space() != shared || low < shared_start || high - shared_start > block.memory.size() ||
      (low < block.guard_end && high > block.guard_begin)) // near the mbarriers
    return {0, unknown};
  return {offset + reinterpret_cast<uint64_t>(block.memory.data()) - shared_start, found};
}

} // namespace ptx
