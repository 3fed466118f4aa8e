// Annotations for ThreadSanitizer and AddressSanitizer in the builds that have them (LAB_TSAN, LAB_ASAN); empty
// functions in any other build.
//
// AddressSanitizer must know on which stack the code runs, and which memory the kernel may not touch.
//
// Each lane is a TSan fiber, and a switch between fibers orders nothing. What orders memory in CUDA is annotated: a
// lane calls `release` when it arrives at a barrier and `acquire` when it leaves. TSan sees the kernel's atomics by
// itself. Only the kernel's text is instrumented. TSan still sees the runtime's mutexes, which would order the lanes
// that lock them; so a lane locks one only as the block's OS thread (AsScheduler).
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(LAB_ASAN) || defined(LAB_UBSAN)
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LAB_ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#endif

#ifdef LAB_TSAN
#include <sanitizer/tsan_interface.h>
#include <vector> // not in other builds: it is a seventh of a kernel's compilation
extern "C" void __tsan_func_entry(void *caller);
extern "C" void __tsan_func_exit();
extern "C" void __tsan_read8(void *);
extern "C" void __tsan_write8(void *);
// For the counters inside the kernel's text, which the lanes of a block share.
#define LAB_UNSEEN __attribute__((noinline, no_sanitize("thread")))
constexpr bool sanitized = true;
#else
#define LAB_UNSEEN
constexpr bool sanitized = false;
#endif

namespace host {

// Objects to release and acquire at a barrier that is used again and again. Two objects alternate between generations:
// with one, a lane that leaves late would also acquire what other lanes released on arrival at the next generation, and
// races would stay hidden.
struct SyncPoint {
  uint64_t object[2];
  unsigned generation = 0;
  void *current() { return &object[generation % 2]; }
};

namespace tsan {

#ifdef LAB_TSAN
// Fibers are reused by the next launch: creating one takes a millisecond.
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
inline void put_back(void *fiber) { spare().push_back(fiber); }
inline void *current_fiber() { return __tsan_get_current_fiber(); }
inline void switch_to(void *fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
inline void release(void *object) { __tsan_release(object); }
inline void acquire(void *object) { __tsan_acquire(object); }
inline void reads(const void *word) { __tsan_read8(const_cast<void *>(word)); } // of 8 bytes, as the next
inline void writes(void *word) { __tsan_write8(word); }

// Adds the caller of a runtime function to the stack trace of a report.
struct CallerFrame {
  explicit CallerFrame(void *caller) { __tsan_func_entry(caller); }
  ~CallerFrame() { __tsan_func_exit(); }
};
#else
inline void *take(const char *) { return nullptr; }
inline void put_back(void *) {}
inline void *current_fiber() { return nullptr; }
inline void switch_to(void *) {}
inline void release(void *) {}
inline void acquire(void *) {}
inline void reads(const void *) {}
inline void writes(void *) {}
struct CallerFrame {
  explicit CallerFrame(void *) {}
  ~CallerFrame() {}
};
#endif

// While it lives, TSan attributes all accesses to the block's OS thread and not to the calling lane.
class AsScheduler {
public:
  explicit AsScheduler(void *scheduler) : lane_(current_fiber()) { switch_to(scheduler); }
  ~AsScheduler() { switch_to(lane_); }

private:
  void *lane_;
};

} // namespace tsan

namespace asan {

struct Stack {
  const void *bottom;
  size_t bytes;
};

#ifdef LAB_ASAN
inline Stack own_stack() {
  pthread_attr_t attributes;
  void *bottom;
  size_t bytes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &bytes);
  pthread_attr_destroy(&attributes);
  return {bottom, bytes};
}
inline void leave(void **kept, const Stack &to) { __sanitizer_start_switch_fiber(kept, to.bottom, to.bytes); }
inline void arrive(void *kept) { __sanitizer_finish_switch_fiber(kept, nullptr, nullptr); }
inline void forbid(const void *from, size_t bytes) { __asan_poison_memory_region(from, bytes); }
#else
inline Stack own_stack() { return {}; }
inline void leave(void **, const Stack &) {}
inline void arrive(void *) {}
inline void forbid(const void *, size_t) {}
#endif

} // namespace asan
} // namespace host
