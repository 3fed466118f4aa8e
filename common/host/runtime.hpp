// CUDA's execution model on a CPU: a grid is a set of blocks, each an OS thread; a block's threads are fibers on it.
//
// A fiber runs until it must wait, so all interleaving happens at barriers, shuffles and spins; the order among
// lanes, warps and blocks comes from a seed. At most `workers` blocks run at the same time. With one worker the whole
// run is a function of the seed, and a block rushes ahead as far as its barriers let it: the strictest schedule.
//
// When every block waits and no atomic has been touched since it last looked, nobody can ever go on: the run is stuck
// and ends with a report of who waits where. No clock is involved in that.
#pragma once
#include "machine.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

extern "C" const host::Entry lab_entry;

namespace host {

constexpr size_t stack_bytes = (64 << 10) + 576; // not a power of two: the tops of all stacks would share cache sets
constexpr int named_barriers = 16;
constexpr size_t guard_bytes = 256; // of canary on both sides of shared memory
constexpr unsigned char canary = 0xa5, poison = 0xff;

enum class Wait : uint8_t { ready, warp, block, named, spin, ended };
enum Status { finished = 0, stuck = 1, timed_out = 2, trapped = 3, corrupted = 4 };

struct Copy {
  void *to;
  const void *from;
  size_t bytes;
};

struct Fiber : Thread {
  void *stack_pointer;
  Wait wait;
  uint8_t parity; // of the warp exchange it comes to next
  Site site;
  int stage, layer;
  int barrier;                // the named one it waits at
  void *tsan;                 // what ThreadSanitizer knows it as
  std::vector<Copy> copies;   // issued and not landed, oldest first
  std::vector<size_t> groups; // how many of them each committed group holds
};

struct Warp {
  uint32_t ready;        // lanes that can run, by slot
  uint32_t order;        // slot = lane ^ order
  int arrived;           // lanes at the current exchange
  uint32_t value[2][32]; // two exchanges: nobody comes to the next but one before all have read this one
  uint64_t meeting[2];   // of the exchanges that are barriers
};

struct NamedBarrier {
  int arrived = 0, expected = 0;
  Meeting meeting;
};

class Grid;

// The fibers of one block, and which of them runs next.
class Block {
public:
  Block(Grid &grid, int index);
  ~Block();
  void run();                                                    // on the block's own OS thread
  void barrier(Site site);                                       // __syncthreads
  void named_barrier(int id, int threads, bool wait, Site site); // bar.sync and bar.arrive
  uint32_t exchange(uint32_t value, int mask, Site site);        // a shuffle, which by CUDA's rules orders no memory
  void warp_barrier(Site site);                                  // __syncwarp, which does
  void spin(Site site);
  void end();     // the running fiber is done
  void join();    // what its threads did comes before what the host does next, but before no other block
  void abandon(); // the grid has failed: leave the fibers where they stand
  void describe(std::string &out) const;
  Fiber &running() { return *running_; }
  Grid &grid() { return grid_; }
  void *scheduler() { return scheduler_tsan_; }
  Counts *counts(int stage) { return &counts_[stage]; }
  bool shared_intact() const;
  void *shared() { return shared_.data() + guard_bytes; }

private:
  void wait(Wait kind, Site site);
  void wake(Wait kind, int id = 0);
  Fiber *next();
  void resume(Fiber &fiber);

  Grid &grid_;
  int index_, arrived_ = 0, ended_ = 0;
  Meeting meeting_;
  NamedBarrier named_[named_barriers];
  uint32_t ready_warps_ = 0, warp_order_ = 0; // slot = warp ^ order
  std::mt19937 random_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<Counts> counts_;
  std::vector<unsigned char> shared_;
  char *stacks_;
  void *scheduler_ = nullptr, *scheduler_tsan_ = nullptr;
  Fiber *running_ = nullptr;
  int spinning_ = 0;
};

// The blocks, and which of them may run.
class Grid {
public:
  explicit Grid(const Launch &launch);
  Status run();
  const Launch &launch() const { return launch_; }
  uint64_t progress() const { return progress_.load(); }
  bool failed() const { return status_.load() != finished; }
  void progressed(int block);          // an atomic changed: whoever spins may look again
  void yield(int block);               // let those who spin look first
  bool idle(int block, uint64_t seen); // sleep until progress differs from `seen`; false when the grid failed
  void fail(Status status, const std::string &report);

private:
  enum class State : uint8_t { waiting, running, idle, ended };
  void body(int block);
  void dispatch();
  void sleep(int block, std::unique_lock<std::mutex> &lock);
  void fail_locked(Status status, const std::string &report);

  const Launch launch_;
  std::mutex mutex_;
  std::vector<State> states_;
  std::vector<uint64_t> seen_;
  std::unique_ptr<std::condition_variable[]> turn_;
  std::condition_variable all_ended_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::mt19937 random_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<int> running_{0}, idle_{0};
  std::atomic<int> status_{finished};
  int ended_ = 0;
};

extern thread_local Block *block;

} // namespace host
