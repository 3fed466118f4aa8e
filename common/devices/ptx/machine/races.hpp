// The race detector: two accesses of one word, at least one a write, must be ordered by PTX's memory model, or both be
// strong for each other's scope.
//
// Each thread has a vector clock: its own time, and for each other thread the time up to which it has seen everything.
// Barriers, releases and acquires hand it on. A word has its last writer and the readers since. The async proxy has a
// second vector, filled by proxy fences only. The accesses of a bulk copy belong to the phase of the mbarrier that it
// completes, which has a time, too. The result does not depend on the order of execution.
#pragma once
#include "machine.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace ptx {

using Seen = std::shared_ptr<const std::vector<uint32_t>>; // by thread, then by mbarrier: the last time; null: nothing

struct Known { // by the generic proxy; by the async proxy, a part of it
  Seen generic, async;
};

struct Epoch { // one access
  uint32_t who = UINT32_MAX, time = 0, pc = 0;
  uint8_t strong = 0, scope = 0, bytes = 0;
  bool any() const { return who != UINT32_MAX; }
};

class Readers { // of one word, when several have read it: a list of a few, else a place for each thread less `first`
public:
  Readers(uint32_t first, uint32_t threads) : first_(first), threads_(threads) {}
  std::span<Epoch> all() { return by_; } // some may be empty
  void add(const Epoch &e) {
    if (!dense_) {
      auto slot = std::ranges::find(by_, e.who, &Epoch::who);
      if (slot == by_.end()) slot = std::ranges::find_if(by_, [](const Epoch &one) { return !one.any(); });
      if (slot != by_.end()) return void(*slot = e);
      if (by_.size() < few) return by_.push_back(e);
      const auto some = std::exchange(by_, std::vector<Epoch>(threads_));
      dense_ = true;
      for (const Epoch &one : some) place(one.who) = one;
    }
    place(e.who) = e;
  }

private:
  static constexpr size_t few = 16; // a place for each thread is kilobytes, for each word of a long cache
  Epoch &place(uint32_t who) {
    if (who - first_ >= by_.size()) by_.resize(who - first_ + 1);
    return by_[who - first_];
  }
  uint32_t first_, threads_;
  bool dense_ = false;
  std::vector<Epoch> by_;
};

struct Cell {
  Epoch write, read[2]; // read: weak, strong
  std::unique_ptr<Readers> many[2];
  std::vector<Epoch> earlier; // strong writes, one per thread, not seen by the later strong writes
  uint32_t no_coherence = 0;  // 1 + pc of a load through the read-only path
};

class Races {
public:
  explicit Races(Grid &grid);
  // Checks before an access. False after a report.
  bool load(Warp &w, const In *in, uint32_t mask, uint8_t *const *from, uint32_t bytes, int count);
  bool store(Warp &w, const In *in, uint32_t mask, uint8_t *const *to, uint32_t bytes, int count,
             const uint64_t *values);
  bool atomic(Warp &w, const In *in, int lane, uint8_t *at, uint32_t bytes);
  // Synchronization.
  void warp_barrier(Warp &w, const uint32_t *masks);
  void warp_barrier(Warp &w, uint32_t mask);
  void arrive(Warp &w, const Barrier &barrier); // without waiting: later accesses are not ordered
  void barrier(const Barrier &barrier);
  void fence(Warp &w, Scope scope);
  void proxy_fence(Warp &w);
  void init_fence(Warp &w);
  bool init(Warp &w, const In *in, int lane, const Mbarrier &b);
  bool arrive(Warp &w, const In *in, int lane, const Mbarrier &b);
  bool waited(Warp &w, const In *in, int lane, const Mbarrier &b);
  void phase_over(Block &block, const Mbarrier &b);
  // Asynchronous copies.
  bool copy_begins(Warp &w, const In *in, int lane, uint8_t *to, uint32_t bytes);
  void copy_lands(Warp &w, const Copy &copy, int lane);
  bool handed_over(Warp &w, const In *in, int lane, const Mbarrier &b); // the lane's copies in flight
  bool bulk_begins(Warp &w, const In *in, int lane, uint8_t *to, const uint8_t *from, uint32_t bytes,
                   const Mbarrier &b);

private:
  struct Thread {
    uint32_t time = 1;
    Known seen, released[2], pending[2]; // released: by fences of block and grid; pending: acquired by the next fence
  };
  struct Place {     // of strong writes: vectors for an acquire there
    Known far, near; // for all blocks; for the writer's block
    uint32_t block;
  };
  struct Phase { // of an mbarrier
    uint32_t component, initializer, initialized;
    bool fenced = false;
    Known pending, over;
  };
  struct Shadow {
    uintptr_t start, end;
    uint32_t cell, first, readers;
    std::vector<std::unique_ptr<Cell[]>> pages;
  };

  uint32_t id(const Warp &w, int lane) const { return w.block->index * threads_ + w.thread(lane); }
  uint32_t block_of(uint32_t who) const { return who < count_ ? who / threads_ : UINT32_MAX; }
  Shadow *shadow(const Warp &w, const void *at);
  Cell &cell(Shadow &s, uintptr_t at);
  static bool holds(const Seen &seen, const Epoch &e) {
    return seen && e.who < seen->size() && (*seen)[e.who] >= e.time;
  }
  bool knows(uint32_t t, const Epoch &e) const {
    return e.who == t ? e.time != UINT32_MAX : holds(by_[t].seen.generic, e);
  }
  bool strong_pair(const Epoch &a, const Epoch &b) const;
  bool harmless(const Epoch &a, const Epoch &b, bool same) const { // without an order
    return strong_pair(a, b) || (same && block_of(a.who) == block_of(b.who));
  }
  Known handed_on(uint32_t t); // the thread's vector with its own time, which advances
  Known together(Warp &w, uint32_t mask, Known before);
  Seen joined(const Seen &a, const Seen &b);
  void join(Known &to, const Known &from);
  void acquire(Warp &w, int lane, uintptr_t at, Flags f);
  void release(Warp &w, int lane, uintptr_t at, Flags f, bool joins);
  bool check_read(Warp &w, const In *in, int lane, Cell &c, Epoch me, uintptr_t at, bool no_coherence);
  bool check_write(Warp &w, const In *in, int lane, Cell &c, const Epoch &me, uintptr_t at, bool same);
  bool check_earlier(Warp &w, const In *in, int lane, const Cell &c, const Epoch &me, uintptr_t at, const char *what,
                     bool same);
  void add_reader(Shadow &s, Cell &c, const Epoch &me);
  bool report(Warp &w, const In *in, int lane, const Epoch &other, const char *what, const char *did, uintptr_t at);
  std::string name(uintptr_t at) const;

  Grid &grid_;
  uint32_t threads_, count_, components_;
  std::vector<Thread> by_;
  std::vector<std::vector<Phase>> phases_; // by block
  std::unordered_map<uintptr_t, Place> places_;
  std::unordered_map<const Barrier *, Known> arrived_; // of warps that do not wait
  std::vector<Shadow> buffers_, shared_;
  Seen last_a_, last_b_, last_join_;
};

} // namespace ptx
