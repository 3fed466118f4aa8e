// The race detector; see races.cpp.
#pragma once
#include "machine.hpp"

namespace ptx {

class Races {
public:
  explicit Races(Grid &grid) : grid_(grid) {}
  bool load(Warp &, const In *, uint32_t, uint8_t *const *, uint32_t, int) { return true; }
  bool store(Warp &, const In *, uint32_t, uint8_t *const *, uint32_t, int, const uint64_t *) { return true; }
  bool atomic(Warp &, const In *, int, uint8_t *, uint32_t) { return true; }
  void warp_barrier(Warp &, const uint32_t *) {}
  void warp_barrier(Warp &, uint32_t) {}
  void barrier(const std::vector<Warp *> &, const std::vector<Warp *> &) {}
  void phase_over(Block &, Mbarrier &) {}
  bool init(Warp &, const In *, int, Mbarrier &) { return true; }
  bool arrive(Warp &, const In *, int, Mbarrier &) { return true; }
  bool waited(Warp &, const In *, int, Mbarrier &) { return true; }
  bool copy_begins(Warp &, const In *, int, uint8_t *, uint32_t) { return true; }
  void copy_lands(Warp &, const Copy &, int) {}
  bool bulk_begins(Warp &, const In *, int, uint8_t *, const uint8_t *, uint32_t, Mbarrier &) { return true; }
  void proxy_fence(Warp &) {}
  void init_fence(Warp &) {}
  void fence(Warp &, Scope) {}

private:
  Grid &grid_;
};

} // namespace ptx
