// Cache entries stored by this launch, for bulk copies of them: copies read memory through another proxy than stores,
// so they may read only entries stored before a proxy fence of the issuing thread.
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
  std::unordered_map<uintptr_t, uint64_t> last_; // number of the last store, by 16 bytes
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0; // range of these
};

} // namespace host
