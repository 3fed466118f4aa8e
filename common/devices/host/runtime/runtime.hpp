// Execution model of the host device: a block is an OS thread, and the CUDA threads of a block are fibers on it.
//
// A fiber runs until it must wait, so fibers interleave only at barriers, shuffles and spin loops. A seed determines
// the order of lanes, warps and blocks. At most `workers` blocks run at the same time. With one worker the whole run is
// a function of the seed, and a block runs until it must wait for another block, so that other blocks' results without
// an ordering barrier are most likely missing.
//
// Deadlock detection uses no clock: when every block waits and no atomic was written since each one last polled, no
// block can ever continue, and the launch fails with a report of where each thread waits.
#pragma once
#include "bulk.hpp"
#include "entries.hpp"
#include "machine.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

extern "C" const host::Entry lab_entry;

namespace host {

constexpr size_t stack_bytes = (64 << 10) + 576; // not a power of two, else all stack tops would share cache sets
constexpr int named_barriers = 16;
constexpr uint64_t never = UINT64_MAX; // progress value of a block without a spinning fiber

enum class Wait : uint8_t { ready, warp, block, named, phase, spin, ended }; // state of a fiber
// Result of a launch; common/devices/cpu.py has the same values.
enum Status { finished = 0, deadlocked = 1, timed_out = 2, trapped = 3, corrupted = 4, faulted = 5 };

// The place of a shuffle or barrier, which lanes of a warp or threads of a block must reach together. A compiler's
// copies of one source line differ in `code` only; so do two calls of one inlined function.
struct Meeting {
  Site site;
  int mask; // of a shuffle; `no_mask` for a barrier
  uintptr_t code;
};
constexpr int no_mask = -1, of_matrices = -2; // of_matrices: an instruction of tensor cores

// Two places that differ in `code` only: common/devices/host/lines.py decides whether they are one in the source.
struct Suspicion {
  const char *who;
  uintptr_t first, second;
};

// One cp.async in flight.
struct Copy {
  void *to;
  const void *from;
  size_t bytes;
  Site site;
};

// One CUDA thread.
struct Fiber : Thread {
  void *stack_pointer;
  Wait wait;      // ready, or the kind of its wait
  uint8_t parity; // of its next warp exchange
  Site site;      // of its wait
  int stage, layer;
  int barrier;                // id of its named barrier, or number of its barrier in shared memory
  uint64_t named;             // named barriers reached so far
  std::vector<Copy> copies;   // in flight, oldest first
  uint64_t proxy_fence;       // time of its last proxy fence: see Entries
  std::vector<size_t> groups; // number of copies in each committed group, oldest first
};

struct Warp {
  uint32_t ready;                            // lanes that can run, by slot
  uint32_t order;                            // slot = lane ^ order
  int arrived;                               // lanes at the current exchange
  Meeting exchange;                          // of the first of them
  std::deque<std::pair<Meeting, int>> named; // named barriers reached by some lanes, with the number of lanes
  uint64_t passed;                           // named barriers reached by all lanes
  uint32_t value[2][32];     // double buffer of exchanges: all lanes read one before any lane reaches the next but one
  LaneWords together[2][32]; // the same for instructions with more words
};

struct NamedBarrier {
  int arrived = 0, expected = 0;
};

// The stacks of a block's fibers, lowest thread first, and its shared memory with a canary before it; null if the
// system has no memory.
struct BlockMemory {
  char *stacks, *canary, *shared;
};
BlockMemory take_memory(uint64_t number);
void put_back(const BlockMemory &memory);
bool intact(const BlockMemory &memory);

// Fills memory with unwritten words: another NaN in each 16 bits, and so in each 32, by `number`. A single word would
// be a value that threads agree on.
void unwritten(char *at, size_t bytes, uint64_t number);

// "a read outside the cache buffer, 2 bytes after its end": `access`, and the address relative to the nearest buffer of
// the running block.
std::string describe_address(const std::string &access, uintptr_t address);

// "{word 1a2b}" with the offset of an instruction in this library, or "{word 0}" if it is in another one;
// common/devices/host/lines.py puts its source line there.
std::string code_name(const char *word, uintptr_t code);

// While a launch runs, faults of its kernel become its Status. Each of its threads needs a SignalStack.
void catch_faults();
void leave_faults();
class SignalStack {
public:
  SignalStack();
  ~SignalStack();

private:
  char bytes_[64 << 10];
};

class Grid;

// One block: its fibers and their scheduler.
class Block {
public:
  Block(Grid &grid, int index);
  ~Block();
  void run();                                                              // on the block's own OS thread
  void barrier(const Meeting &here);                                       // __syncthreads
  void named_barrier(int id, int threads, bool wait, const Meeting &here); // bar.sync and bar.arrive
  uint32_t exchange(uint32_t value, const Meeting &here); // __shfl_xor_sync: in CUDA it orders no memory
  const LaneWords *together(const void *own, size_t bytes, const Meeting &here);
  void warp_barrier(const Meeting &here); // __syncwarp: orders memory within the warp
  void spin(Site site);
  void end();     // ends the running fiber
  void abandon(); // the launch has failed: returns to the scheduler and never resumes the running fiber
  void spoil(void *target, size_t bytes); // of a copy issued by the running fiber
  uint64_t number() const;                // of this launch and block, for unwritten memory
  void describe(std::string &out) const;
  Fiber &running() { return *running_; }
  Grid &grid() { return grid_; }
  Counts *counts(int stage) { return &counts_[stage]; }
  const BlockMemory &memory() const { return memory_; }
  bool runs() const { return running_ != nullptr; }
  bool owns_stack(const void *address) const; // true for an address on a fiber's stack
  void *stack_top() const;                    // of the running fiber
  const std::vector<Suspicion> &suspicions() const { return suspicions_; }
  Bulk &bulk() { return bulk_; }
  std::string who() const; // thread, block, stage and layer of the running fiber

private:
  friend Bulk;
  void wait(Wait kind, Site site);
  void give_way(Site site);
  void go_on(Fiber &self, Fiber *to);
  void wake(Wait kind, int id = 0);
  void meet(const Meeting &first, const Meeting &here, const char *who) {
    if (first.code != here.code || first.mask != here.mask || first.site.line != here.site.line)
      differ(first, here, who);
  }
  void meet_named(const Meeting &here);
  void differ(const Meeting &first, const Meeting &here, const char *who);
  Wait state(const Fiber &fiber) const;
  Fiber *next();
  void resume(Fiber &fiber);
  void change(Fiber *from, Fiber *to);

  Grid &grid_;
  int index_, arrived_ = 0, ended_ = 0;
  Meeting barrier_{}; // of the first thread at the current block barrier
  std::vector<Suspicion> suspicions_;
  NamedBarrier named_[named_barriers];
  uint32_t ready_warps_ = 0, warp_order_ = 0; // slot = warp ^ order
  Bulk bulk_{*this};
  std::mt19937 random_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<Counts> counts_;
  BlockMemory memory_;
  void *scheduler_ = nullptr;
  Fiber *running_ = nullptr;
  int spinning_ = 0;
};

// One launch: its blocks and their scheduler.
class Grid {
public:
  explicit Grid(const Launch &launch);
  Status run();
  const Launch &launch() const { return launch_; }
  uint64_t progress() const { return progress_.load(); }
  bool failed() const { return status_.load() != finished; }
  void progressed(int block);            // an atomic was written: blocks that spin may poll again
  void published(int block);             // the same for one word of many: the block mostly goes on
  bool idle(int block, uint64_t polled); // sleep until progress differs from `polled`; false when the launch failed
  void fail(Status status, const std::string &report);
  Entries &entries() { return entries_; }

private:
  enum class State : uint8_t { ready, running, idle, ended }; // ready: can run when a worker is free
  void body(int block);
  void dispatch();
  void sleep(int block, std::unique_lock<std::mutex> &lock);
  void fail_locked(Status status, const std::string &report);
  void report_suspicions();
  void write_report(const std::string &report);

  const Launch launch_;
  std::mutex mutex_;
  std::vector<State> states_;
  std::vector<uint64_t> polled_; // by block: value of progress_ when its fibers last polled, or `never`
  std::unique_ptr<std::condition_variable[]> scheduled_;
  std::condition_variable all_ended_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::mt19937 random_;
  std::atomic<uint64_t> progress_{0}; // atomic writes so far, plus ended blocks
  std::atomic<int> running_{0}, idle_{0};
  std::atomic<int> status_{finished};
  int ended_ = 0;
  Entries entries_;
};

extern thread_local Block *block;

} // namespace host
