// Fences between blocks, as ThreadSanitizer has to be told of them: it knows none of its own.
//
// The rule is that of C++, and of PTX at GPU scope: what a thread did before a fence comes before what another does
// after a fence of its own, if it has looked in between at a word that the first published after its fence.
#pragma once
#include <mutex>
#include <unordered_map>
#include <vector>

namespace host {

// Of one thread.
struct Fenced {
  uint64_t objects[4] = {}; // for ThreadSanitizer, of its last fences: a late reader must not acquire a newer one
  unsigned fences = 0;
  std::vector<void *> seen; // objects of the fences before what it has looked at since its last fence
  void *last() { return fences == 0 ? nullptr : &objects[fences % 4]; }
};

// Of one launch: the last fence of whoever published a word.
class Fences {
public:
  void publishes(const void *word, Fenced &by);
  void looked(const char *words, int count, Fenced &self);

private:
  std::mutex mutex_;
  std::unordered_map<const void *, void *> before_;
};

} // namespace host
