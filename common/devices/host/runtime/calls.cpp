// Functions called by the kernel's text, executed on the calling fiber; machine.hpp declares them.
#include "runtime.hpp"

namespace host {

namespace {

// Lets the grid's scheduler run another block; does not return if the launch has failed.
void reschedule(void (Grid::*how)(int)) {
  (block->grid().*how)(current->block);
  if (block->grid().failed()) block->abandon();
}

} // namespace

void mark(int stage, int layer) {
  Fiber &fiber = block->running();
  fiber.stage = stage;
  fiber.layer = layer;
  fiber.counts = block->counts(stage);
}
#define HERE(mask)                                                                                                     \
  Meeting { site, mask, reinterpret_cast<uintptr_t>(__builtin_return_address(0)) }
void block_barrier(Site site) { block->barrier(HERE(no_mask)); }
void named_barrier(int id, int threads, bool wait, Site site) {
  block->named_barrier(id, threads, wait, HERE(no_mask));
}
void warp_barrier(Site site) { block->warp_barrier(HERE(no_mask)); }
uint32_t exchange(uint32_t value, int mask, Site site) {
  if (mask < 0 || mask > 31) trap("a shuffle needs a mask of 0 to 31", site);
  return block->exchange(value, HERE(mask));
}
const LaneWords *together(const void *own, size_t bytes, Site site) {
  return block->together(own, bytes, HERE(of_matrices));
}
#undef HERE
void spin_pause(Site site) { block->spin(site); }
void progressed() { reschedule(&Grid::progressed); }
void published() { reschedule(&Grid::published); }
void trap(const char *why, Site site) {
  std::string report =
      std::string(why) + " at " + site.file + ":" + std::to_string(site.line) + " " + block->who() + "\n";
  block->running().site = site;
  block->describe(report);
  block->grid().fail(trapped, report);
  block->abandon();
  __builtin_unreachable();
}

void refuse(const char *access, const void *address, Site site) {
  const std::string where = describe_address(access, reinterpret_cast<uintptr_t>(address));
  block->running().site = site;
  const std::string caller = code_name("called from", reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1);
  block->grid().fail(faulted,
                     where + " at " + site.file + ":" + std::to_string(site.line) + caller + " " + block->who() + "\n");
  block->abandon();
  __builtin_unreachable();
}

// A deferred copy (cp.async): its target is NaN from the issue on and receives the source's bytes only at the wait.
void copy_async(void *to, const void *from, size_t bytes, Site site) {
  check_aligned(to, bytes, site);
  check_aligned(from, bytes, site);
  check_buffer("copy_async to an address", to, of_shared, site);
  check_buffer("copy_async", from, of_weights | of_cache | of_scratch, site);
  Fiber &fiber = block->running();
  fiber.counts->copied_async += bytes;
  const auto *first = static_cast<const char *>(to), *last = first + bytes;
  for (const Copy &other : fiber.copies) {
    const auto *start = static_cast<const char *>(other.to);
    if (start < last && first < start + other.bytes) trap("two copies in flight to overlapping targets", site);
  }
  block->spoil(to, bytes);
  fiber.copies.push_back({to, from, bytes, site});
}
void mbarrier_init(void *barrier, int arrivals, Site site) { block->bulk().init(barrier, arrivals, site); }
void mbarrier_init_fence() { block->bulk().fence_init(); }
void mbarrier_arrive(void *barrier, unsigned bytes, Site site) { block->bulk().arrive(barrier, bytes, site); }
void mbarrier_wait(void *barrier, unsigned phase, bool old, Site site) {
  block->bulk().wait(barrier, phase, old, site);
}
void mbarrier_arrive_copied(void *barrier, Site site) { block->bulk().hand_over(barrier, site); }
void copy_bulk(void *to, const void *from, size_t bytes, void *barrier, Site site) {
  block->bulk().copy(to, from, bytes, barrier, site);
}
void fence_proxy_async() { block->bulk().fence_proxy(); }

void copy_commit() {
  Fiber &fiber = block->running();
  size_t grouped = 0;
  for (size_t g : fiber.groups) grouped += g;
  fiber.groups.push_back(fiber.copies.size() - grouped);
  block->bulk().commit();
}
void copy_wait(int newest) {
  Fiber &fiber = block->running();
  while (static_cast<int>(fiber.groups.size()) > newest) {
    const size_t count = fiber.groups.front();
    for (size_t i = 0; i < count; ++i) memcpy(fiber.copies[i].to, fiber.copies[i].from, fiber.copies[i].bytes);
    fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + count);
    fiber.groups.erase(fiber.groups.begin());
  }
  if (newest == 0) block->bulk().wait_for_committed();
}

} // namespace host
