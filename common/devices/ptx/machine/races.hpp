// The race detector: two accesses of one byte, at least one a write, must be ordered by PTX's memory model, or both be
// strong for each other's scope.
//
// Each thread has a vector clock: its own time, and for each other thread the time up to which it has seen everything.
// Barriers, releases and acquires hand it on. A word has its last writer and the readers since. The async proxy has a
// second vector for each space, filled by its proxy fences only. The accesses of a bulk copy belong to the phase of the
// mbarrier that it completes, which has a time, too. The result does not depend on the order of execution.
#pragma once
#include "cells.hpp"

#include <array>
#include <set>

namespace ptx {

using Seen = std::shared_ptr<const std::vector<uint32_t>>; // by thread, then by mbarrier: the last time; null: nothing

struct Known { // by the generic proxy; by the async proxy, a part of it: in global memory, in shared memory
  Seen generic;
  std::array<Seen, 2> async;
};

constexpr uint32_t in_flight = UINT32_MAX; // time of accesses by cp.async before any wait for it

class Races {
public:
  explicit Races(Grid &grid);
  // Checks before an access. False if the launch is over.
  bool load(Warp &w, const In *in, uint32_t mask, uint8_t *const *from, uint32_t bytes, int count);
  bool store(Warp &w, const In *in, uint32_t mask, uint8_t *const *to, uint32_t bytes, int count,
             const uint64_t *values);
  bool atomic(Warp &w, const In *in, int lane, uint8_t *at, uint32_t bytes);
  // Synchronization.
  void warp_barriers(Warp &w, uint32_t lanes, const uint32_t *masks); // these lanes, each with its members
  void arrive(Warp &w, const Barrier &barrier);                       // without waiting: later accesses are not ordered
  void barrier(const Barrier &barrier);
  void fence(Warp &w, Flags f);
  void proxy_fence(Warp &w, Space space);
  void init_fence(Warp &w);
  bool init(Warp &w, const In *in, int lane, const uint8_t *at);
  bool arrive(Warp &w, const In *in, int lane, const Mbarrier &b);
  bool waited(Warp &w, const In *in, int lane, const Mbarrier &b);
  void phase_over(Block &block, const Mbarrier &b);
  // Asynchronous copies.
  bool copy_begins(Warp &w, const Copy &copy, int lane);
  void copy_lands(Warp &w, const Copy &copy, int lane);
  bool handed_over(Warp &w, const In *in, int lane, const Mbarrier &b); // the lane's copies in flight
  bool bulk_begins(Warp &w, const In *in, int lane, uint8_t *to, const uint8_t *from, uint32_t bytes,
                   const Mbarrier &b);
  const std::string &found() const { return found_; } // lines of the races found

private:
  struct Thread {
    uint32_t time = 1;
    Known seen, released[2], pending[2]; // released: by fences of block and grid; pending: acquired by the next fence
  };
  struct Place {                    // strong writes: vectors for an acquire there
    Known far;                      // for all blocks
    std::map<uint32_t, Known> near; // by block, only for its own threads
    uint32_t releaser = UINT32_MAX; // the last thread that released, and what it did, which its later stores do, too
    Known its_far, its_near;
  };
  struct Phase { // phase of an mbarrier
    uint32_t component, initializer, initialized;
    bool fenced = false;
    Known pending, over;
  };
  struct Access { // by lanes with one vector; lane: the first of them; one: the thread, if there is only one
    Warp &w;
    const In *in;
    int lane;
    const std::vector<uint32_t> *seen;
    Epoch me;
    uint32_t one;
  };

  struct Stored { // element k of the vector that a lane stores
    uint32_t mask;
    int lane, k, count;
    uint32_t bytes;
    uint8_t *const *to;
    const uint64_t *values;
    bool same() const;
  };

  uint32_t id(const Warp &w, int lane) const { return w.block->index * threads_ + w.thread(lane); }
  Thread &thread(const Warp &w, int lane) { return by_[id(w, lane)]; }
  uint32_t block_of(uint32_t who) const { return who < count_ ? who / threads_ : UINT32_MAX; }
  Access access(Warp &w, const In *in, uint32_t lanes, uint32_t bytes, bool strong) const;
  Shadow *shadow(const Warp &w, const void *at);
  // Calls does(cell, its address) for each word that has a shadow, until it returns false.
  template <class F> bool cells(const Warp &w, const void *at, uint32_t bytes, F does) {
    Shadow *s = shadow(w, at);
    return !s || s->each(reinterpret_cast<uintptr_t>(at), bytes, does);
  }
  static bool holds(const std::vector<uint32_t> *seen, uint32_t thread, uint32_t time) {
    return seen && thread < seen->size() && (*seen)[thread] >= time;
  }
  static bool knows(const Access &a, const Epoch &e);
  uint32_t lanes_like(const Warp &w, int lane, uint32_t among) const;
  bool strong_pair(const Epoch &a, const Epoch &b) const;
  static bool covers(const Epoch &later, const Epoch &e);
  Known handed_on(uint32_t t); // the thread's vector with its own time, which advances
  Known together(std::span<const Barrier::Waiting> who, const Known &before);
  auto copy_of(const Seen &seen) const { return std::make_shared<std::vector<uint32_t>>(seen ? *seen : nothing_); }
  Seen joined(const Seen &a, const Seen &b);
  void join(Known &to, const Known &from);
  void acquire(Warp &w, int lane, uintptr_t at, Flags f);
  void release(Warp &w, int lane, uintptr_t at, Flags f, bool joins);
  bool check_read(const Access &a, Cell &c, uintptr_t at, bool no_coherence);
  bool check_write(const Access &a, Cell &c, uintptr_t at, const Stored *stored); // stored: null if by a copy
  static bool follows(const Access &a, Cell &c, const Epoch &write);
  template <class Harmless>
  bool check_earlier(const Access &a, const Cell &c, uintptr_t at, const char *what, bool after, Harmless harmless);
  Phase *phase_for(Warp &w, const In *in, int lane, const Mbarrier &b, const char *what);
  Access of_phase(Warp &w, const In *in, int lane, const Mbarrier &b) const;
  void has_read(Warp &w, const Copy &copy, int lane, const Access &a); // that of `a`, in flight until now
  bool add_reader(const Access &a, Cell &c) const;                     // always true
  bool report(const Access &a, const Epoch &other, const char *what, const char *did, uintptr_t at);
  std::string name(uintptr_t at) const;

  static constexpr size_t most_pairs = 64; // pairs of instructions, after which the launch stops
  Grid &grid_;
  uint32_t threads_, count_, components_;
  std::vector<Thread> by_;
  std::vector<uint32_t> nothing_;          // seen at first
  std::vector<std::vector<Phase>> phases_; // by block
  std::unordered_map<uintptr_t, Place> places_;
  std::unordered_map<const Barrier *, Known> arrived_; // arrivals of warps that do not wait
  std::vector<Shadow> buffers_, shared_;
  Seen last_a_, last_b_, last_join_;
  std::set<std::pair<uint32_t, uint32_t>> pairs_; // instructions, reported
  std::string found_;
};

} // namespace ptx
