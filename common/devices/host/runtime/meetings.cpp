// CUDA's rule of shuffles and barriers: the lanes of a warp reach the same one together, and so do the threads of a
// block.
//
// A GPU does not check it: lanes at different shuffles exchange undefined values, or wait for ever. CUDA counts ended
// threads as arrived at a block barrier, and allows different masks of lanes; the lab needs neither, and here both end
// the launch.
#include "runtime.hpp"

#include <algorithm>
#include <cstring>

namespace host {

namespace {

std::string described(const Meeting &meeting) {
  const std::string mask = meeting.mask < 0 ? "" : " with mask " + std::to_string(meeting.mask);
  const char *what = meeting.mask == no_mask       ? "a barrier at "
                     : meeting.mask == of_matrices ? "an instruction of tensor cores at "
                                                   : "a shuffle at ";
  return what + std::string(meeting.site.file) + ":" + std::to_string(meeting.site.line) + mask +
         code_name("called from", meeting.code - 1);
}

} // namespace

// With equal source lines and masks, only the debug information tells whether the places are the same: the launch goes
// on, and the pair is kept for the report.
void Block::differ(const Meeting &first, const Meeting &here, const char *who) {
  if (first.mask == here.mask && first.site.line == here.site.line && strcmp(first.site.file, here.site.file) == 0) {
    const auto known = [&](const Suspicion &other) { return other.first == first.code && other.second == here.code; };
    if (std::none_of(suspicions_.begin(), suspicions_.end(), known))
      suspicions_.push_back({who, first.code, here.code});
    return;
  }
  running_->site = here.site;
  grid_.fail(faulted, std::string(who) + " meet at different places: " + described(first) + ", and " + described(here) +
                          ", the latter " + this->who() + "\n");
  abandon();
}

// Inlined, like the switches to the next fiber: a step of Qwen3-0.6B executes them a hundred million times.
[[gnu::always_inline]] inline uint32_t Block::exchange(uint32_t value, const Meeting &here) {
  Fiber &self = *running_;
  const int w = self.index / 32, lane = self.index % 32, parity = self.parity;
  Warp &warp = warps_[w];
  self.parity ^= 1;
  warp.value[parity][lane] = value;
  if (warp.arrived == 0) warp.exchange = here;
  meet(warp.exchange, here, "lanes of a warp");
  if (++warp.arrived < 32) {
    wait(Wait::warp, here.site);
    self.wait = Wait::ready;
  } else {
    self.counts->shuffles += here.mask != of_matrices;
    warp.arrived = 0;
    warp.ready = ~(1u << (lane ^ warp.order));
    ready_warps_ |= 1u << (w ^ warp_order_);
  }
  return warp.value[parity][here.mask < 0 ? lane : lane ^ here.mask];
}

const LaneWords *Block::together(const void *own, size_t bytes, const Meeting &here) {
  LaneWords *all = warps_[running_->index / 32].together[running_->parity];
  memcpy(all[running_->index % 32], own, bytes);
  exchange(0, here);
  return all;
}

void Block::warp_barrier(const Meeting &here) { exchange(0, here); }

// bar.sync and bar.arrive are for whole warps: the lanes of a warp reach the same ones, in the same order. An arrival
// does not wait, so the first lanes may be several barriers ahead.
void Block::meet_named(const Meeting &here) {
  Warp &warp = warps_[running_->index / 32];
  const uint64_t turn = running_->named++ - warp.passed;
  if (turn == warp.named.size()) warp.named.emplace_back(here, 0);
  meet(warp.named[turn].first, here, "lanes of a warp");
  if (++warp.named[turn].second == 32) {
    warp.named.pop_front();
    ++warp.passed;
  }
}

} // namespace host
