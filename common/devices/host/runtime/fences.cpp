#include "runtime.hpp"

#include <algorithm>

namespace host {

void Fences::publishes(const void *word, Fenced &by) {
  if (by.fences == 0) return; // it carries nothing
  const std::lock_guard<std::mutex> lock(mutex_);
  before_[word] = by.last();
}

void Fences::looked(const char *words, int count, Fenced &self) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count && !before_.empty(); ++i) {
    const auto found = before_.find(words + 4 * i);
    if (found != before_.end() && std::find(self.seen.begin(), self.seen.end(), found->second) == self.seen.end())
      self.seen.push_back(found->second);
  }
}

void publishes(const void *word) {
  const tsan::AsScheduler as(block->scheduler());
  block->grid().fences().publishes(word, block->running().fenced);
}

void looked(const float *words, int count) {
  const tsan::AsScheduler as(block->scheduler());
  block->grid().fences().looked(reinterpret_cast<const char *>(words), count, block->running().fenced);
}

void fence() {
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
  if (!sanitized) return;
  Fenced &self = block->running().fenced;
  for (void *object : self.seen) tsan::acquire(object);
  self.seen.clear();
  ++self.fences;
  tsan::release(self.last());
}

} // namespace host
