// Entries of the cache that this launch has stored, for bulk copies of them: a copy reads memory another way than
// stores go, so it may read only what was stored before a proxy fence of the thread that issues it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace host {

class Entries {
public:
  void store(uintptr_t element);
  uint64_t now();
  bool stored_after(const char *from, size_t bytes, uint64_t fence);

private:
  std::mutex mutex_;
  uint64_t stores_ = 0;
  std::unordered_map<uintptr_t, uint64_t> last_; // of each 16 bytes, the number of the last store
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0; // of these
};

} // namespace host
