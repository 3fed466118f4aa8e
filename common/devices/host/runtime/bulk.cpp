#include "bulk.hpp"
#include "runtime.hpp"

#include <algorithm>

namespace host {

namespace {

constexpr uint64_t initialized = 0x7265697272616200; // content of an initialized barrier: an ordinary store destroys it
constexpr size_t most = (1 << 20) - 1;               // limit of arrivals and of expected bytes of a phase

bool overlap(const char *a, size_t bytes, const char *b, size_t others) { return a < b + others && b < a + bytes; }

std::string number(size_t n) { return std::to_string(n); }

} // namespace

// Copies of one thread, handed over together.
struct Bulk::Handed {
  std::vector<Copy> copies;
  int which;
  const Fiber *by;
  uint64_t entries; // stores in the cache before these copies
  bool committed;
};

Bulk::Bulk(Block &block) : block_(block) {}
Bulk::~Bulk() = default;

void Bulk::init(void *at, int arrivals, Site site) {
  check_aligned(at, sizeof initialized, site);
  check_buffer("mbarrier_init", at, of_shared, site);
  if (arrivals < 1 || static_cast<size_t>(arrivals) > most) trap("a barrier counts 1 to 1048575 arrivals", site);
  for (size_t b = 0; b < barriers_.size(); ++b)
    if (barriers_[b].at == at) stop(static_cast<int>(b), "a second initialization", site);
  *static_cast<volatile uint64_t *>(at) = initialized;
  Mbarrier barrier{};
  barrier.at = static_cast<char *>(at);
  barrier.by = &block_.running();
  barrier.arrivals = barrier.pending = arrivals;
  barriers_.push_back(barrier);
}

void Bulk::fence_init() {
  for (Mbarrier &barrier : barriers_)
    if (barrier.by == &block_.running()) barrier.fenced = true;
}

int Bulk::find(const void *at, Site site) const {
  check_buffer("a barrier", at, of_shared, site);
  for (size_t b = 0; b < barriers_.size(); ++b) {
    if (barriers_[b].at != at) continue;
    if (*static_cast<const volatile uint64_t *>(at) != initialized)
      stop(static_cast<int>(b), "its memory was overwritten", site);
    return static_cast<int>(b);
  }
  trap("a barrier that is not initialized", site);
}

void Bulk::arrive(void *at, unsigned bytes, Site site) {
  const int which = find(at, site);
  Mbarrier &barrier = barriers_[which];
  if (barrier.pending == barrier.promised) stop(which, "an arrival too many: " + missing(which), site);
  if (barrier.expected + bytes > most) stop(which, "more than 1048575 bytes are expected", site);
  barrier.expected += bytes;
  --barrier.pending;
  if (complete(which)) block_.give_way(site); // a waiting warp may be faster than this one
}

// Begins the next phase if this one has all arrivals and bytes.
bool Bulk::complete(int which) {
  Mbarrier &barrier = barriers_[which];
  if (barrier.pending > 0 || barrier.expected > 0) return false;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  if (barrier.waiting > 0) block_.wake(Wait::phase, which);
  barrier.waiting = 0;
  return true;
}

void Bulk::wait(void *at, unsigned phase, bool old, Site site) {
  const int which = find(at, site);
  if (Mbarrier &barrier = barriers_[which]; old && !barrier.named) {
    barrier.named = true;
    barrier.age = (phase - barrier.phase + 1) & ~1u; // phase is the one in progress, or the one before
  }
  phase -= barriers_[which].age;
  const auto other = [&] {
    stop(which,
         "a wait for phase " + number(phase) + " while phase " + number(barriers_[which].phase) +
             " is in progress: a GPU sees the parity of a phase only",
         site);
  };
  if (phase != barriers_[which].phase && phase + 1 != barriers_[which].phase) other();
  if (phase == barriers_[which].phase) {
    ++barriers_[which].waiting;
    block_.running().barrier = which;
    block_.wait(Wait::phase, site);
    if (phase + 1 != barriers_[which].phase) other(); // it came back after the next phase, too
  }
}

void Bulk::copy(void *to, const void *from, size_t bytes, void *at, Site site) {
  const int which = find(at, site);
  Mbarrier &barrier = barriers_[which];
  auto *first = static_cast<char *>(to);
  if (bytes == 0 || bytes % 16 != 0 || !aligned(to, 16) || !aligned(from, 16))
    trap("a bulk copy whose size or addresses are not multiples of 16 bytes", site);
  check_buffer("copy_bulk to an address", first, of_shared, site);
  check_buffer("copy_bulk to an address", first + bytes - 1, of_shared, site);
  check_buffer("copy_bulk", from, of_weights | of_cache, site);
  check_buffer("copy_bulk", static_cast<const char *>(from) + bytes - 1, of_weights | of_cache, site);
  if (unfenced(static_cast<const char *>(from), bytes))
    trap("a bulk copy of bytes that were stored after this thread's last fence_proxy_async", site);
  if (!barrier.fenced) stop(which, "a bulk copy before the fence that follows its initialization", site);
  if (barrier.asked + bytes > barrier.expected)
    stop(which,
         "a bulk copy of " + number(bytes) + " bytes where " + number(barrier.expected - barrier.asked) +
             " more are expected",
         site);
  for (const Mbarrier &other : barriers_)
    if (overlap(first, bytes, other.at, sizeof initialized)) trap("a bulk copy over a barrier", site);
  for (const Run &other : copies_)
    if (overlap(first, bytes, other.to, other.bytes)) trap("two copies in flight to overlapping targets", site);
  if (memcmp(first, seen(first), bytes) != 0)
    trap("a bulk copy over bytes that were stored after the last fence_proxy_async", site);
  block_.running().counts->copied_bulk += bytes;
  barrier.asked += bytes;
  block_.spoil(first, bytes);
  memcpy(seen(first), first, bytes);
  copies_.push_back({first, from, bytes, which, site, block_.grid().entries().now()});
}

void Bulk::hand_over(void *at, Site site) {
  const int which = find(at, site);
  Mbarrier &barrier = barriers_[which];
  Fiber &self = block_.running();
  if (barrier.pending == barrier.promised) stop(which, "an arrival too many: " + missing(which), site);
  const char *shared = block_.memory().shared;
  targets_.resize(lab_entry.shared_bytes / 4 + 1);
  for (const Copy &copy : self.copies) {
    auto *to = static_cast<char *>(copy.to);
    for (size_t word = (to - shared) / 4; word < (to - shared + copy.bytes) / 4; ++word) {
      if (targets_[word]) trap("two copies in flight to overlapping targets", copy.site);
      targets_[word] = true;
    }
    memcpy(seen(to), to, copy.bytes);
  }
  handed_.push_back({std::move(self.copies), which, &self, block_.grid().entries().now(), false});
  self.copies.clear();
  std::fill(self.groups.begin(), self.groups.end(), 0);
  ++barrier.promised;
}

void Bulk::commit() {
  for (Handed &each : handed_) each.committed |= each.by == &block_.running();
}

void Bulk::wait_for_committed() {
  for (size_t i = 0; i < handed_.size();)
    if (handed_[i].by != &block_.running() || !handed_[i].committed)
      ++i;
    else if (!land_handed(i))
      block_.abandon();
}

const Site *Bulk::unfinished() const {
  for (const Handed &each : handed_)
    if (each.by == &block_.running() && !each.copies.empty()) return &each.copies[0].site;
  return nullptr;
}

void Bulk::fence_proxy() {
  const Range &shared = block_.running().shared;
  memcpy(seen(shared.start), shared.start, shared.bytes);
  block_.running().proxy_fence = block_.grid().entries().now();
}

// True if any of the bytes, in the cache, was stored after the running thread's last proxy fence.
bool Bulk::unfenced(const char *from, size_t bytes) {
  return block_.grid().entries().stored_after(from, bytes, block_.running().proxy_fence);
}

// The place of an address in the copy engine's view of shared memory, which also begins unwritten.
char *Bulk::seen(const char *shared) {
  if (seen_.empty()) {
    seen_.resize(lab_entry.shared_bytes);
    unwritten(seen_.data(), seen_.size(), block_.number());
  }
  return seen_.data() + (shared - block_.memory().shared);
}

std::string Bulk::in_flight() const {
  if (copies_.empty()) return "";
  return std::string("a bulk copy is under way when its block ends: it was issued at ") + copies_[0].site.file + ":" +
         number(copies_[0].site.line) + "\n";
}

bool Bulk::land(std::mt19937 &random) {
  std::vector<size_t> awaited;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (barriers_[copies_[i].which].waiting > 0) awaited.push_back(i);
  for (size_t i = 0; i < handed_.size(); ++i)
    if (barriers_[handed_[i].which].waiting > 0) awaited.push_back(copies_.size() + i);
  if (awaited.empty()) return false;
  const size_t chosen = awaited[random() % awaited.size()];
  return chosen < copies_.size() ? land_run(chosen) : land_handed(chosen - copies_.size());
}

bool Bulk::land_run(size_t at) {
  const Run copy = copies_[at];
  copies_.erase(copies_.begin() + static_cast<ptrdiff_t>(at));
  if (!landed(copy.to, copy.from, copy.bytes, copy.entries, copy.site, "a bulk copy")) return false;
  Mbarrier &barrier = barriers_[copy.which];
  barrier.expected -= copy.bytes;
  barrier.asked -= copy.bytes;
  complete(copy.which);
  return true;
}

bool Bulk::land_handed(size_t at) {
  const Handed all = std::move(handed_[at]);
  handed_.erase(handed_.begin() + static_cast<ptrdiff_t>(at));
  for (const Copy &copy : all.copies) {
    auto *to = static_cast<char *>(copy.to);
    if (!landed(to, copy.from, copy.bytes, all.entries, copy.site, "a copy")) return false;
    const size_t word = (to - block_.memory().shared) / 4;
    for (size_t i = 0; i < copy.bytes / 4; ++i) targets_[word + i] = false;
  }
  --barriers_[all.which].promised;
  --barriers_[all.which].pending;
  complete(all.which);
  return true;
}

// Lands a copy's bytes; false, and the launch has failed, if its source or target was written in the meantime.
bool Bulk::landed(char *to, const void *from, size_t bytes, uint64_t entries, Site site, const char *what) {
  const bool source = block_.grid().entries().stored_after(static_cast<const char *>(from), bytes, entries);
  if (source || memcmp(to, seen(to), bytes) != 0) {
    block_.grid().fail(trapped, std::string("the ") + (source ? "source" : "target") + " of " + what +
                                    " was written while the copy was in flight: it was issued at " + site.file + ":" +
                                    number(site.line) + "\n");
    return false;
  }
  memcpy(to, from, bytes);
  memcpy(seen(to), to, bytes);
  return true;
}

std::string Bulk::name(int which) const {
  return "the barrier at byte " + number(barriers_[which].at - block_.memory().shared) + " of shared memory";
}

std::string Bulk::missing(int which) const {
  const Mbarrier &barrier = barriers_[which];
  const std::string arrivals = number(barrier.pending) + " of " + number(barrier.arrivals) + " arrivals";
  return "phase " + number(barrier.phase) + " of " + name(which) + " waits for " + arrivals + " and " +
         number(barrier.expected) + " bytes, " + number(barrier.asked) + " of them in flight";
}

void Bulk::stop(int which, const std::string &why, Site site) const { trap((why + ", " + name(which)).c_str(), site); }

} // namespace host
