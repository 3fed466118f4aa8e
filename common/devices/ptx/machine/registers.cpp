// Registers with a value before a warp begins: constants, parameters and special registers.
#include "machine.hpp"

namespace ptx {
namespace {

template <class F> void set(Warp &w, const Filled &one, F value) {
  for (int lane = 0; lane < warp_size; ++lane) {
    const uint64_t v = value(lane);
    if (one.bytes == 8)
      w.reg<uint64_t>(one.at)[lane] = v;
    else if (one.bytes == 4)
      w.reg<uint32_t>(one.at)[lane] = uint32_t(v);
    else if (one.bytes == 2)
      w.reg<uint16_t>(one.at)[lane] = uint16_t(v);
    else
      w.reg<uint8_t>(one.at)[lane] = uint8_t(v);
  }
}

} // namespace

void fill(Warp &w, const Filled &one, const Launch &l) {
  const uint32_t *blocks = l.grid, *threads = l.block, block = w.block->index;
  const uint32_t at[3] = {block % blocks[0], block / blocks[0] % blocks[1], block / blocks[0] / blocks[1]};
  const auto thread = [&](int lane) { return w.thread(lane); };
  switch (Fill(one.kind)) {
  case number:
    return set(w, one, [&](int) { return one.value; });
  case parameter: {
    uint64_t value = 0;
    std::memcpy(&value, l.parameters + one.value, one.bytes);
    return set(w, one, [&](int) { return value; });
  }
  case tid_x:
    return set(w, one, [&](int i) { return thread(i) % threads[0]; });
  case tid_y:
    return set(w, one, [&](int i) { return thread(i) / threads[0] % threads[1]; });
  case tid_z:
    return set(w, one, [&](int i) { return thread(i) / threads[0] / threads[1]; });
  case ctaid_x:
  case ctaid_y:
  case ctaid_z:
    return set(w, one, [&](int) { return at[one.kind - ctaid_x]; });
  case ntid_x:
  case ntid_y:
  case ntid_z:
    return set(w, one, [&](int) { return threads[one.kind - ntid_x]; });
  case nctaid_x:
  case nctaid_y:
  case nctaid_z:
    return set(w, one, [&](int) { return blocks[one.kind - nctaid_x]; });
  case laneid:
    return set(w, one, [](int i) { return i; });
  case warpid:
    return set(w, one, [&](int) { return w.index; });
  case lanemask_eq:
    return set(w, one, [](int i) { return 1u << i; });
  case lanemask_lt:
    return set(w, one, [](int i) { return (1u << i) - 1; });
  case lanemask_le:
    return set(w, one, [](int i) { return (2u << i) - 1; });
  case lanemask_gt:
    return set(w, one, [](int i) { return ~((2u << i) - 1); });
  case lanemask_ge:
    return set(w, one, [](int i) { return ~((1u << i) - 1); });
  case dynamic_shared:
    return set(w, one, [&](int) { return l.dynamic_shared; });
  case envreg1:
    return set(w, one, [&](int) { return uint32_t(l.workspace >> 32); });
  case envreg2:
    return set(w, one, [&](int) { return uint32_t(l.workspace); });
  }
}

} // namespace ptx
