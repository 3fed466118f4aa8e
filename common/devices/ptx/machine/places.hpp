// Translation of a lane's address to memory of the process, with all checks.
#pragma once
#include "lanes.hpp"
#include "races.hpp"

namespace ptx {

// Kind of an access.
enum Does : uint32_t { reads = 1, writes = 2, by_copy = 4 };

// "ld.global at 0x7f..: 4 bytes after the end of `cache`": names the nearest buffer.
[[gnu::cold]] void bad_address(Warp &w, const In *in, int lane, uint64_t address, uint32_t bytes, const char *why);

inline uint64_t address_of(const Warp &w, uint32_t at, bool wide, int lane) {
  return wide ? w.reg<uint64_t>(at)[lane] : w.reg<uint32_t>(at)[lane];
}

// The buffer with these bytes, or null.
inline const Buffer *find(const Grid &grid, uint64_t address, uint64_t bytes) {
  for (uint32_t i = 0; i < grid.launch.buffer_count; ++i) {
    const Buffer &buffer = grid.launch.buffers[i];
    if (address - buffer.start < buffer.bytes && bytes <= buffer.bytes - (address - buffer.start)) return &buffer;
  }
  return nullptr;
}

// Slow path of `place`: generic and local addresses, near mbarriers, and faults.
uint8_t *odd_place(Warp &w, const In *in, Space space, int lane, uint64_t address, uint32_t bytes, uint32_t does);

// The place of a lane's bytes (a power of two); null after a fault, which stops the launch.
inline uint8_t *place(Warp &w, const In *in, Space space, int lane, uint64_t address, uint32_t bytes, uint32_t does) {
  if (space == shared && !(address & (bytes - 1))) {
    Block &block = *w.block;
    const uint64_t at = address - shared_start, end = address + bytes;
    if (address >= shared_start && at + bytes <= block.memory.size() &&
        (end <= block.guard_begin || address >= block.guard_end))
      return block.memory.data() + at;
  } else if (space == global && !(address & (bytes - 1))) {
    const Buffer *buffer = find(*w.grid, address, bytes);
    if (buffer && (buffer->writable || !(does & writes))) return reinterpret_cast<uint8_t *>(address);
  }
  return odd_place(w, in, space, lane, address, bytes, does);
}

// The same for the bytes at [a], as most instructions have them.
inline uint64_t address_of(const Warp &w, const In *in, int lane) {
  return address_of(w, in->a, Flags{in->flags}.wide(), lane) + uint64_t(in->imm);
}
inline uint64_t shared_address(const Warp &w, const In *in, int lane) { // in the window of shared memory
  return address_of(w, in, lane) - (Flags{in->flags}.space() == generic ? shared_window : 0);
}
inline uint8_t *place(Warp &w, const In *in, int lane, uint32_t bytes, uint32_t does) {
  return place(w, in, Flags{in->flags}.space(), lane, address_of(w, in, lane), bytes, does);
}

// The same for all lanes of the group. False after a fault.
bool places(Warp &w, const In *in, uint32_t bytes, uint32_t does, uint8_t **at);

// Spacing of the lanes' bytes, known if one check covers all of them.
enum Spacing : uint64_t { unknown, in_a_row, the_same, apart };
struct Lanes {
  uint64_t added; // to a lane's address, for the place of its bytes
  Spacing spacing;
};

// Checks all lanes at once; `unknown` if each needs its own check.
Lanes all_places(Warp &w, const In *in, uint32_t bytes, uint32_t does);
inline uint8_t *first_place(const Warp &w, const In *in, Lanes at) {
  return reinterpret_cast<uint8_t *>(address_of(w, in->a, Flags{in->flags}.wide(), 0) + at.added);
}

} // namespace ptx
