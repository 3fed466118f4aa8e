// What ThreadSanitizer is told, in the build that has it (LAB_TSAN); nothing in any other.
//
// Each lane is a TSan fiber, and a switch between fibers orders nothing. What orders memory in CUDA is said in words:
// `release` when a lane arrives somewhere, `acquire` when it goes on; the kernel's atomics TSan sees for itself. Only
// the kernel's text is instrumented. The runtime's locks would still order whoever takes them, so they are only taken
// as the block's OS thread: AsScheduler.
#pragma once
#include <cstdint>
#include <vector>

#ifdef LAB_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_func_entry(void *caller);
extern "C" void __tsan_func_exit();
// The bookkeeping inside the kernel's text: counters that the lanes of a block share.
#define LAB_UNSEEN __attribute__((noinline, no_sanitize("thread")))
constexpr bool sanitized = true;
#else
#define LAB_UNSEEN
constexpr bool sanitized = false;
#endif

namespace host {

// A place where lanes meet again and again. Each generation has an object of its own, two in turn: with one, a lane
// that wakes late would also acquire what others have released on their way into the next generation, and races would
// hide.
struct Meeting {
  uint64_t object[2];
  unsigned generation = 0;
  void *now() { return &object[generation % 2]; }
};

namespace tsan {

#ifdef LAB_TSAN
// Fibers are kept for the next launch: one takes a millisecond to make.
inline std::vector<void *> &spare() {
  static std::vector<void *> fibers;
  return fibers;
}
inline void *take(const char *name) {
  void *fiber = spare().empty() ? __tsan_create_fiber(0) : spare().back();
  if (!spare().empty()) spare().pop_back();
  __tsan_set_fiber_name(fiber, name);
  return fiber;
}
inline void give_back(void *fiber) { spare().push_back(fiber); }
inline void *running() { return __tsan_get_current_fiber(); }
inline void enter(void *fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
inline void release(void *object) { __tsan_release(object); }
inline void acquire(void *object) { __tsan_acquire(object); }

// Puts the caller of a runtime function on the stack that a report shows.
struct Called {
  explicit Called(void *caller) { __tsan_func_entry(caller); }
  ~Called() { __tsan_func_exit(); }
};
#else
inline void *take(const char *) { return nullptr; }
inline void give_back(void *) {}
inline void *running() { return nullptr; }
inline void enter(void *) {}
inline void release(void *) {}
inline void acquire(void *) {}
struct Called {
  explicit Called(void *) {}
  ~Called() {}
};
#endif

// For as long as it lives, what happens is done by the block's OS thread and by no lane.
class AsScheduler {
public:
  explicit AsScheduler(void *scheduler) : lane_(running()) { enter(scheduler); }
  ~AsScheduler() { enter(lane_); }

private:
  void *lane_;
};

} // namespace tsan
} // namespace host
