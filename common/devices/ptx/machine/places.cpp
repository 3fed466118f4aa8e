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
    snprintf(text, sizeof text, ", %llu bytes %s the %s buffer",
             (unsigned long long)(before  ? nearest->start - address
                                  : after ? address - end
                                          : address - nearest->start),
             before  ? "before"
             : after ? "after the end of"
                     : "into",
             nearest->name);
    report += text;
  }
  fault(w, in, report, 1u << lane);
}

uint8_t *place(Warp &w, const In *in, Space space, int lane, uint64_t address, uint32_t bytes, uint32_t does) {
  const auto wrong = [&](const char *why) -> uint8_t * {
    bad_address(w, in, lane, address, bytes, why);
    return nullptr;
  };
  if (address & (bytes - 1) && (bytes & (bytes - 1)) == 0) return wrong("misaligned");
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
    if (address < shared_start || at + bytes > block.memory.size()) return wrong("outside shared memory");
    if (!(does & by_copy) && address < block.guard_end && address + bytes > block.guard_begin) {
      const auto next = block.mbarriers.upper_bound(uint32_t(address + bytes - 1));
      if (next != block.mbarriers.begin() && std::prev(next)->first + 8 > address)
        return wrong(does & writes ? "a store over an mbarrier" : "a plain load of an mbarrier");
    }
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

} // namespace ptx
