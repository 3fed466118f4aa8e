// Registers with a value before a warp begins: constants, parameters and special registers.
#include "machine.hpp"

namespace ptx {

static uint64_t special(const Warp &w, const Filled &one, const Launch &l, int lane) {
  const size_t axis = one.value % 3;
  const auto along = [&](uint32_t index, const uint32_t *sizes) { // the axis
    return (axis == 0 ? index : axis == 1 ? index / sizes[0] : index / sizes[0] / sizes[1]) % sizes[axis];
  };
  const uint32_t eq = 1u << lane, lt = eq - 1, masks[] = {eq, lt, eq | lt, ~(eq | lt), ~lt};
  const uint64_t by_kind[] = {along(w.thread(lane), l.block),
                              along(w.block->index, l.grid),
                              l.block[axis],
                              l.grid[axis],
                              uint64_t(lane),
                              w.index,
                              masks[one.value % 5],
                              l.dynamic_shared,
                              uint32_t(l.workspace >> one.value % 64)};
  return by_kind[one.kind - tid];
}

void fill(Warp &w, const Filled &one, const Launch &l) {
  uint64_t value = one.value;
  if (one.kind == parameter) value = 0, std::memcpy(&value, l.parameters + one.value, one.bytes);
  const auto set = [&]<class T>(T *d) {
    for (int lane = 0; lane < warp_size; ++lane) d[lane] = T(one.kind <= parameter ? value : special(w, one, l, lane));
  };
  one.bytes == 8   ? set(w.reg<uint64_t>(one.at))
  : one.bytes == 4 ? set(w.reg<uint32_t>(one.at))
  : one.bytes == 2 ? set(w.reg<uint16_t>(one.at))
                   : set(w.reg<uint8_t>(one.at));
}

} // namespace ptx
