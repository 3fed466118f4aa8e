// CUDA's rule of shuffles and barriers: the lanes of a warp reach the same one together, and so do the threads of a
// block.
//
// A GPU does not check it: lanes that meet at different shuffles exchange whatever the hardware finds, or wait for
// ever. CUDA lets threads that have ended count as arrived at a block barrier, and lanes name different masks; the lab
// needs neither, and here both end the launch.
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

// Where the source lines and masks are the same, only the debug information can tell whether the place is: the launch
// goes on, and the two are left for the host.
void Block::differ(const Meeting &first, const Meeting &here, const char *who) {
  const tsan::AsScheduler as(scheduler_tsan_);
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

// No memcpy, which ThreadSanitizer would see: the lanes need no order to read what is deposited here.
const LaneWords *Block::together(const LaneWords &own, const Meeting &here) {
  LaneWords *all = warps_[running_->index / 32].together[running_->parity];
  for (int word = 0; word < together_words; ++word) all[running_->index % 32][word] = own[word];
  exchange(0, here);
  return all;
}

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
