// Fiber scheduler of one block: ready fibers, waits of the others, and the switch to the next one.
#include "runtime.hpp"
#include "switch.hpp"

#include <algorithm>

namespace host {

thread_local Thread *current;
thread_local Block *block;

namespace {

constexpr const char *stage_names[] = {LAB_STAGE_NAMES};
constexpr int stages = sizeof stage_names / sizeof *stage_names;

void fiber_start() {
  lab_entry.body(block->grid().launch(), block->memory().shared);
  block->end();
}

} // namespace

Block::Block(Grid &grid, int index)
    : grid_(grid), index_(index), random_(static_cast<uint32_t>(grid.launch().seed * 1000003 + index)),
      fibers_(lab_entry.threads), warps_(lab_entry.threads / 32), counts_(stages), memory_(take_memory(number())) {
  const Launch &l = grid.launch();
  for (int t = 0; t < lab_entry.threads; ++t) {
    Fiber &fiber = fibers_[t];
    fiber.index = t;
    fiber.block = index;
    fiber.blocks = grid.launch().blocks;
    fiber.counts = &counts_[0];
    fiber.data[0] = {reinterpret_cast<const char *>(l.weights), l.bytes[0]};
    fiber.data[1] = {reinterpret_cast<const char *>(l.cache), l.bytes[1]};
    fiber.data[2] = {reinterpret_cast<const char *>(l.scratch), l.bytes[2]};
    fiber.shared = {memory_.shared, lab_entry.shared_bytes};
    fiber.wait = Wait::block; // so that the first `wake` in `run` makes it ready
    if (memory_.stacks != nullptr)
      fiber.stack_pointer = fresh_stack(memory_.stacks + stack_bytes * t, stack_bytes, fiber_start);
  }
}

Block::~Block() { put_back(memory_); }

void Block::run() {
  if (memory_.stacks == nullptr) return grid_.fail(trapped, "out of memory for the stacks of the block's threads");
  const SignalStack signal_stack;
  block = this;
  wake(Wait::block);
  uint64_t polled = grid_.progress();
  while (!grid_.failed()) {
    if (Fiber *fiber = next()) {
      resume(*fiber);
      continue;
    }
    if (bulk_.land(random_)) continue; // as late as can be: no fiber is ready
    if (ended_ == lab_entry.threads) {
      if (const std::string left = bulk_.in_flight(); !left.empty()) grid_.fail(trapped, left);
      break;
    }
    // No fiber is ready. Spinning fibers can continue only if an atomic changed since they last polled. Without
    // spinning fibers this block can never continue; it still sleeps, so that the deadlock report can describe all
    // blocks.
    if (spinning_ == 0 || polled == grid_.progress())
      if (!grid_.idle(index_, spinning_ == 0 ? never : polled)) break;
    polled = grid_.progress();
    spinning_ = 0;
    wake(Wait::spin);
  }
  for (int s = 0; s < stages; ++s) {
    const auto *from = reinterpret_cast<const uint64_t *>(&counts_[s]);
    auto *to = reinterpret_cast<uint64_t *>(&grid_.launch().counts[s]);
    for (size_t i = 0; i < sizeof(Counts) / sizeof(uint64_t); ++i)
      __atomic_fetch_add(to + i, from[i], __ATOMIC_RELAXED);
  }
}

// Makes every fiber waiting for `kind` ready, in a new random order; for numbered barriers only number `id`.
void Block::wake(Wait kind, int id) {
  warp_order_ = random_() % 32;
  ready_warps_ = 0;
  for (int w = 0; w < static_cast<int>(warps_.size()); ++w) {
    Warp &warp = warps_[w];
    uint32_t lanes = 0;
    for (int l = 0; l < 32; ++l) {
      Fiber &fiber = fibers_[w * 32 + l];
      const bool numbered = kind == Wait::named || kind == Wait::phase;
      if (fiber.wait == kind && (!numbered || fiber.barrier == id)) fiber.wait = Wait::ready;
      if (state(fiber) == Wait::ready && &fiber != running_) lanes |= 1u << l;
    }
    warp.order = random_() % 32;
    warp.ready = 0;
    for (int l = 0; l < 32; ++l)
      if (lanes >> l & 1) warp.ready |= 1u << (l ^ warp.order);
    if (warp.ready != 0) ready_warps_ |= 1u << (w ^ warp_order_);
  }
}

// The current wait of a fiber. The last lane of a warp to arrive makes the others ready all at once, by their slots;
// each updates its own state as it goes on.
Wait Block::state(const Fiber &fiber) const {
  const Warp &warp = warps_[fiber.index / 32];
  const bool ready = fiber.wait == Wait::warp && (warp.ready >> (fiber.index % 32 ^ warp.order) & 1) != 0;
  return ready ? Wait::ready : fiber.wait;
}

[[gnu::always_inline]] inline Fiber *Block::next() {
  if (ready_warps_ == 0) return nullptr;
  // Stay in the running warp while it has a ready lane, so that a shuffle finishes before another warp runs.
  int w = running_ == nullptr ? -1 : running_->index / 32;
  if (w < 0 || warps_[w].ready == 0) w = __builtin_ctz(ready_warps_) ^ warp_order_;
  Warp &warp = warps_[w];
  const int slot = __builtin_ctz(warp.ready);
  warp.ready &= warp.ready - 1;
  if (warp.ready == 0) ready_warps_ &= ~(1u << (w ^ warp_order_));
  return &fibers_[w * 32 + (slot ^ warp.order)];
}

// Leaves one context for another: a fiber, or the scheduler for null. Returns when another context comes back.
[[gnu::always_inline]] inline void Block::change(Fiber *from, Fiber *to) {
  lab_switch(from == nullptr ? &scheduler_ : &from->stack_pointer, to == nullptr ? scheduler_ : to->stack_pointer);
}

void Block::resume(Fiber &fiber) {
  running_ = &fiber;
  current = &fiber;
  change(nullptr, &fiber);
  running_ = nullptr;
}

[[gnu::always_inline]] inline void Block::go_on(Fiber &self, Fiber *to) {
  if (to != nullptr) running_ = to, current = to;
  if (to != &self) change(&self, to);
}

[[gnu::always_inline]] inline void Block::wait(Wait kind, Site site) {
  Fiber &self = *running_;
  self.wait = kind;
  self.site = site;
  go_on(self, next());
}

// Yields: any ready fiber of any warp may run next.
void Block::give_way(Site site) {
  Fiber &self = *running_;
  self.wait = Wait::ready;
  self.site = site;
  running_ = nullptr;
  wake(Wait::ready);
  go_on(self, next());
}

void Block::barrier(const Meeting &here) {
  if (running_->index >= lab_entry.computing) trap("a loader warp in a block barrier", here.site);
  if (arrived_ == 0) barrier_ = here;
  meet(barrier_, here, "threads of a block");
  if (++arrived_ < lab_entry.computing) {
    wait(Wait::block, here.site);
  } else {
    arrived_ = 0;
    ++running_->counts->block_barriers;
    Fiber &self = *running_;
    self.wait = Wait::block;
    running_ = nullptr; // so that `wake` may schedule any fiber next, not always the last to arrive
    wake(Wait::block);
    running_ = &self;
    wait(Wait::ready, here.site);
  }
}

void Block::named_barrier(int id, int threads, bool wait_for_it, const Meeting &here) {
  const Site site = here.site;
  if (id < 1 || id >= named_barriers || threads % 32 != 0) // 0 is for __syncthreads
    trap("a named barrier needs an id of 1 to 15 and whole warps", site);
  meet_named(here);
  NamedBarrier &barrier = named_[id];
  if (barrier.arrived > 0 && barrier.expected != threads)
    trap("threads disagree about how many arrive at a named barrier", site);
  barrier.expected = threads;
  Fiber &self = *running_;
  self.barrier = id;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++self.counts->block_barriers;
    wake(Wait::named, id);
  } else if (wait_for_it) {
    wait(Wait::named, site);
  }
}

void Block::spin(Site site) {
  ++spinning_;
  wait(Wait::spin, site);
}

void Block::end() {
  if (!running_->copies.empty())
    trap("a copy is under way when its thread ends: it was issued", running_->copies[0].site);
  if (const Site *handed = bulk_.unfinished()) trap("a copy is under way when its thread ends: it was issued", *handed);
  ++ended_;
  wait(Wait::ended, running_->site);
  __builtin_unreachable();
}

void Block::abandon() { change(running_, nullptr); }

uint64_t Block::number() const { return grid_.launch().seed * 1024 + index_; }

void Block::spoil(void *target, size_t bytes) { unwritten(static_cast<char *>(target), bytes, random_()); }

bool Block::owns_stack(const void *address) const {
  return holds({memory_.stacks, stack_bytes * fibers_.size() - sizeof(void *) + 1}, address);
}

void *Block::stack_top() const { return memory_.stacks + stack_bytes * (running_->index + 1); }

std::string Block::who() const {
  return "by thread " + std::to_string(running_->index) + " of block " + std::to_string(index_) + ", stage " +
         stage_names[running_->stage] + ", layer " + std::to_string(running_->layer);
}

// Appends one line for each group of fibers with the same wait at the same source line.
void Block::describe(std::string &out) const {
  constexpr const char *states[] = {// by Wait
                                    "ready",
                                    "waiting at a shuffle",
                                    "waiting at a block barrier",
                                    "waiting at a named barrier",
                                    "waiting for a phase",
                                    "spinning",
                                    "ended"};
  std::vector<bool> described(fibers_.size());
  for (size_t t = 0; t < fibers_.size(); ++t) {
    if (described[t]) continue;
    const Fiber &first = fibers_[t];
    const Wait now = state(first);
    const bool started = now != Wait::block || first.site.file != nullptr;
    size_t same = 0;
    for (size_t u = t; u < fibers_.size(); ++u) {
      const Fiber &other = fibers_[u];
      const bool here = state(other) == now && other.stage == first.stage && other.layer == first.layer &&
                        (now != Wait::phase || other.barrier == first.barrier) &&
                        (now == Wait::ended || other.site.line == first.site.line);
      if (here) described[u] = true, ++same;
    }
    out += "block " + std::to_string(index_) + ": " + std::to_string(same) + (same == 1 ? " thread" : " threads") +
           " (first " + std::to_string(t) + ") " + (started ? states[static_cast<int>(now)] : "not started");
    if (now != Wait::ended && first.site.file != nullptr)
      out += std::string(" at ") + first.site.file + ":" + std::to_string(first.site.line);
    out += std::string(", stage ") + stage_names[first.stage] + ", layer " + std::to_string(first.layer);
    if (now == Wait::phase) out += ": " + bulk_.missing(first.barrier);
    out += "\n";
  }
}

} // namespace host
