// Memory of a block: the stacks of its fibers, and its shared memory, which ends at inaccessible pages.
#include "runtime.hpp"

#include <algorithm>
#include <array>
#include <sys/mman.h>
#include <unistd.h>

namespace host {

namespace {

constexpr size_t guard = 64 << 10;
constexpr uint16_t canary = 0xffa5; // a NaN, as in common/devices/guarded.py

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

struct Sizes {
  size_t stacks = whole_pages(stack_bytes * lab_entry.threads), shared = whole_pages(lab_entry.shared_bytes);
  size_t all = guard + stacks + guard + shared + guard;
};

BlockMemory map_memory() {
  const auto [stacks, shared, all] = Sizes{};
  void *at = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return {};
  char *first = static_cast<char *>(at) + guard, *second = first + stacks + guard;
  if (mprotect(first, stacks, PROT_READ | PROT_WRITE) == 0 && mprotect(second, shared, PROT_READ | PROT_WRITE) == 0)
    return {first, second, second + shared - lab_entry.shared_bytes};
  munmap(at, all);
  return {};
}

// Reused by the next launch: mapping new memory takes longer than a small kernel. Freed with the library: a process
// that runs many kernels would otherwise reach the limit of its mappings.
struct Spare {
  std::mutex mutex;
  std::vector<BlockMemory> memories;
  ~Spare() {
    for (const BlockMemory &memory : memories) munmap(memory.stacks - guard, Sizes{}.all);
  }
} spare;

// The canary's words: from the start of the pages to the shared memory, which may start at an odd address.
struct Words {
  uint16_t *first, *last;
};
Words canary_words(const BlockMemory &memory) {
  auto *first = reinterpret_cast<uint16_t *>(memory.canary);
  return {first, first + (memory.shared - memory.canary) / 2};
}

// All pairs of unwritten.py's NaNs, ordered so that neighbours differ in both halves.
constexpr uint32_t halves = 126, pairs = halves * halves, step = 5347; // without a common factor
const auto nans = [] {
  const auto nan = [](uint32_t n) { return 0x7f81 + n / 2 + (n & 1) * 0x8000; };
  std::array<uint32_t, pairs> words;
  for (uint32_t i = 0, n = 0; i < pairs; ++i, n = (n + step) % pairs)
    words[i] = nan(n % halves) | nan(n / halves) << 16;
  return words;
}();

} // namespace

void unwritten(char *at, size_t bytes, uint64_t number) {
  const size_t first = ((number * 0x9e3779b97f4a7c15 >> 32) * pairs >> 32) * 4; // far apart for neighbours
  const char *from = reinterpret_cast<const char *>(nans.data()), *end = from + sizeof nans;
  for (from += first; bytes > 0;) {
    const size_t some = std::min(bytes, static_cast<size_t>(end - from));
    memcpy(at, from, some);
    at += some, bytes -= some, from = end - sizeof nans;
  }
}

BlockMemory take_memory(uint64_t number) {
  std::unique_lock<std::mutex> lock(spare.mutex);
  BlockMemory memory{};
  if (!spare.memories.empty()) memory = spare.memories.back(), spare.memories.pop_back();
  lock.unlock();
  if (memory.stacks == nullptr) memory = map_memory();
  if (memory.stacks == nullptr) return memory;
  const Words words = canary_words(memory);
  std::fill(words.first, words.last, canary);
  unwritten(memory.shared, lab_entry.shared_bytes, number);
  return memory;
}

void put_back(const BlockMemory &memory) {
  if (memory.stacks == nullptr) return;
  const std::lock_guard<std::mutex> lock(spare.mutex);
  spare.memories.push_back(memory);
}

bool intact(const BlockMemory &memory) {
  const Words words = canary_words(memory);
  return std::all_of(words.first, words.last, [](uint16_t word) { return word == canary; });
}

} // namespace host
