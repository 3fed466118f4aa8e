#include "runtime.hpp"

#include <algorithm>

namespace host {

void Entries::store(uintptr_t element) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_[element / 16] = ++stores_;
  lowest_ = std::min(lowest_, element / 16);
  highest_ = std::max(highest_, element / 16);
}

uint64_t Entries::now() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stores_;
}

bool Entries::stored_after(const char *from, size_t bytes, uint64_t fence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto first = reinterpret_cast<uintptr_t>(from) / 16;
  if (first > highest_ || first + bytes / 16 <= lowest_) return false; // always for weights
  for (uintptr_t unit = first; unit < first + bytes / 16; ++unit) {
    const auto found = last_.find(unit);
    if (found != last_.end() && found->second > fence) return true;
  }
  return false;
}

void stored_entry(const void *element) { block->grid().entries().store(reinterpret_cast<uintptr_t>(element)); }

} // namespace host
