// Data of the executor. A grid has blocks, a block warps, a warp groups of lanes at the same instruction.
//
// A register of a warp is 32 lanes side by side in `file`, a predicate one word of 32 bits. An instruction holds the
// offsets of its registers and two functions: one for a warp with all live lanes active, one for a mask of them.
// Each function ends with a jump to the next instruction's (threaded code).
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ptx {

constexpr int warp_size = 32;
constexpr uint32_t all_lanes = 0xffffffffu;
constexpr uint32_t shared_start = 1024, local_start = 4096; // addresses within a window; a null pointer is in none
// Generic addresses of shared and local memory, outside the process's own. Their low words are not zero, so that an
// address of one kind does not pass for the other.
constexpr uint64_t shared_window = 0x00a10000d5030000, local_window = 0x00a20000e1050000, window_bytes = 1 << 24;
constexpr int named_barriers = 16, looked_lines = 4096;

struct Block;
struct Grid;
struct In;
struct Warp;
class Races;
using Fn = void (*)(Warp &, const In *);

enum Space : uint32_t { generic, global, shared, local, constant };
enum Order : uint32_t { weak, relaxed, acquire, release, acq_rel, no_coherence, in_step };
enum Scope : uint32_t { cta, gpu, sys }; // a cluster is one block
enum Status { finished, deadlocked, timed_out, trapped, faulted, raced };

// One decoded instruction; offsets are in bytes of a warp's file.
struct alignas(64) In {
  Fn run[2];             // all live lanes; some
  Fn inside;             // some; run[1] differs at a label, where it first looks for lanes to join
  uint32_t d, a, b, c;   // registers; 0 for an absent operand
  int64_t imm;           // offset of an address, target of a branch, or as the operation says
  uint32_t flags;        // bits of `Flags`, or the operation's own (`Op`)
  uint32_t more;         // index of further operands in Program::more
  mutable uint64_t last; // last address read
};

struct Flags {
  uint32_t bits;
  Space space() const { return Space(bits & 7); }
  Order order() const { return Order(bits >> 3 & 7); }
  Scope scope() const { return Scope(bits >> 6 & 3); }
  bool wide() const { return bits >> 8 & 1; } // the address register has 64 bits
  bool strong() const { return order() != weak && order() != no_coherence; }
};

struct Buffer {
  const char *name;
  uint64_t start, bytes;
  uint32_t writable;
};

struct Filled { // a register with an initial value
  uint32_t at, kind, bytes;
  uint64_t value;
};
// Its kind. value: of a number; the offset of a parameter; the axis of tid, ctaid, ntid and nctaid; 0 to 4 for a lane's
// mask eq, lt, le, gt, ge; the first bit of a half of the workspace's address; 1 for the number of multiprocessors.
enum Fill : uint32_t {
  number,
  parameter,
  tid,
  ctaid,
  ntid,
  nctaid,
  laneid,
  warpid,
  lanemask,
  dynamic_shared,
  workspace,
  parameters,
  multiprocessor
};

enum class Moves { nothing, word, copy, bulk, jump_if, jump_unless };
struct Counted { // an instruction's own functions, called after counting
  Fn run[2];
  Moves moves;
};

// The last postdominator of each aligned barrier, and all of these in order.
struct Beyond {
  std::unordered_map<const In *, const In *> of;
  std::vector<const In *> places;
};

struct Program {
  std::vector<In> code;
  Beyond beyond;
  std::vector<Counted> counted; // or none
  std::vector<uint32_t> more;
  std::vector<Filled> filled;
  uint32_t file_bytes, shared_bytes, local_bytes;
};

struct Launch {
  uint32_t grid[3], block[3];
  const uint8_t *parameters;
  const Buffer *buffers;
  uint32_t buffer_count, dynamic_shared;
  uint64_t seed;
  double timeout;
  uint32_t patience;      // rounds of polls by all sleepers without a write that are a deadlock; 0: see grid.cpp
  uint32_t strict, races; // strict: by-seed preemption, poisoned targets of copies
  uint64_t empty;         // value whose store makes a word empty, ordered with every access; 2^32 for none
  uint64_t workspace;     // address for grid.sync(), see program.py
  uint64_t *executed;     // lanes, or bytes of copies, by instruction and buffer, see counted.cpp; null: not counted
  char *report;
  uint64_t report_size;
};

enum class Wait : uint8_t { ready, lanes, barrier, poll };
struct Group {
  uint32_t mask;
  const In *ip;
  Wait wait;
};

// cp.async of lanes with equally many committed groups.
struct Copy {
  uint32_t mask, group, bytes;
  const In *in;
  uint8_t *to[warp_size];
  const uint8_t *from[warp_size];
  uint8_t read[warp_size]; // bytes read; the rest are zeros
  uint64_t number;         // among the copies of its warp
  uint32_t handed;         // lanes with this copy handed over to an mbarrier
  uint32_t landed = 0;     // lanes whose bytes are there, which none of them may count on before it has waited
};

struct Warp {
  uint8_t *file;
  uint32_t mask, live; // lanes of the running group; lanes that have not ended
  int fuel;            // branches left in this turn
  uint32_t index;      // in the block
  Block *block;
  Grid *grid;
  const Program *program;
  int current;         // running group, or -1
  bool queued, asleep; // in Grid::queue; has groups that poll
  std::vector<Group> groups;
  std::vector<uint64_t> looked; // address and lane of each poll since the last progress
  uint64_t looked_at;           // Grid::progress at that time
  uint8_t *local;
  uint32_t committed[warp_size];
  std::deque<Copy> copies;
  uint64_t copied;              // copies so far
  std::vector<uint32_t> beyond; // diverged lanes that have been at each of Beyond::places, or none
  template <class T> T *reg(uint32_t at) const { return reinterpret_cast<T *>(file + at); }
  uint32_t thread(int lane) const { return index * warp_size + uint32_t(lane); } // in the block
};

struct Barrier {
  struct Waiting {
    Warp *warp;
    uint32_t mask;
    const In *in;
  };
  uint32_t arrived = 0, expected = 0; // threads of whole warps; expected: 0 for all of the block
  uint32_t yes = 0, voters = 0;       // lanes with a true predicate, and all with one, see barrier.red
  const In *first = nullptr;
  std::vector<Waiting> waiting;
};

struct Mbarrier {
  uint32_t expected, pending, phase;
  int64_t bytes;         // still to come
  uint32_t index;        // in the block
  uint32_t promised = 0; // arrivals pending on copies in flight
  // The last copy counted here, the number of phases up to its own, and of those that a thread has seen complete.
  const In *copy = nullptr;
  Warp *copier = nullptr;
  uint32_t lane = 0, carried = 0, seen_over = 0;
  void carries(Warp &w, const In *in, int by) { copier = &w, copy = in, lane = 1u << by, carried = phase + 1; }
};

struct Bulk { // a bulk copy; or, with `lanes`, their arrival once the warp's copies below number `before` have landed
  uint8_t *to;
  const uint8_t *from;
  uint32_t bytes, barrier;
  uint64_t due; // turn of the scheduler
  const In *in;
  Warp *warp;
  uint32_t lanes = 0;
  uint64_t before = 0;
};

struct Block {
  uint32_t index;
  Grid *grid;
  std::vector<uint8_t> memory; // shared
  std::vector<Warp> warps;
  Barrier barriers[named_barriers];
  std::vector<std::unique_ptr<Mbarrier>> mbarriers; // by address / 8, or empty
  uint32_t guard_begin = UINT32_MAX, guard_end = 0; // range of their addresses
  uint32_t initialized = 0;                         // mbarriers initialized so far
  std::vector<Bulk> bulks;
  Mbarrier *mbarrier(uint64_t address) const { // the one at this address, or null
    return address % 8 || address / 8 >= mbarriers.size() ? nullptr : mbarriers[address / 8].get();
  }
};

struct Random { // SplitMix64
  uint64_t state;
  uint32_t operator()() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return uint32_t(z >> 32);
  }
};

struct Grid {
  Grid(const Program &program, const Launch &launch);
  ~Grid();
  Status run();
  void fail(Status status, const Warp &w, const In *in, const std::string &text, uint32_t mask = 0);
  void note(const Warp &w, const In *in, const std::string &text, uint32_t mask);
  void touch(const void *at, size_t bytes) { // after a write
    ++progress;
    if (!sleepers) return;
    const auto first = reinterpret_cast<uintptr_t>(at);
    for (uintptr_t line = first >> 5; line <= (first + bytes - 1) >> 5; ++line)
      if (!lines[line % looked_lines].empty()) wake_those_who_look(line);
  }
  void ready(Warp &w);
  void look(Warp &w, int lane, const void *at);        // at bytes of one line
  bool would_sleep(Warp &w, int lane, const void *at); // true if the lane polls there again without a change
  void sleep(Warp &w, const In *in);                   // until a change, then the group polls again
  bool polls_on(Warp &w); // true for one warp of a launch, for a while, in place of a sleep: no other one runs then
  std::string place(const Warp &w, const In *in, uint32_t mask) const;
  uint32_t below(uint32_t n) { return uint32_t(random() % n); }

  const Program &program;
  const Launch &launch;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Warp *> queue, lines[looked_lines]; // lines: warps that poll a line with this hash
  uint32_t sleepers = 0, alive = 0, in_flight = 0;
  uint64_t progress = 0, turn = 0;
  static inline thread_local uint64_t earlier = 0; // turns of the thread's launches before this one
  uint32_t calm_sleeps, restless_waits = 512; // sleeps before the warp that polls on, and what it does not sleep for
  const Warp *restless = nullptr;
  Status status = finished;
  Random random;
  std::unique_ptr<Races> races;
  std::vector<uint8_t> locals;

private:
  void wake_those_who_look(uintptr_t line);
  void wake(Warp &w);
  void step(Warp &w);
  void land_due(bool any); // any: at least one, due or not
  void all_turns();
  void end(Status why, const std::string &report); // the first call counts
  std::string who_waits() const;
  std::string report_, notes_;
};

// Stops the running group; it goes on at `in`.
inline void park(Warp &w, const In *in, Wait wait) {
  w.groups[size_t(w.current)].ip = in;
  w.groups[size_t(w.current)].wait = wait;
  w.current = -1;
}

void fault(Warp &w, const In *in, const std::string &text, uint32_t mask = 0);
// True if all members are here; else the group waits. masks: the register of each lane's members, 0 for the whole warp.
bool gathered(Warp &w, const In *in, uint32_t masks = 0);
void land(Warp &w, uint32_t mask, uint32_t newest); // all but the newest cp.async groups
void land(Block &block, size_t bulk);
void ended(Warp &w);                       // lanes have ended: barriers may be complete without them
bool waited_for_copies(const Mbarrier &b); // false after a fault

struct Op {
  Fn plain, masked;
  uint32_t flags = 0; // selects an operation of a shared function
};
using Ops = std::map<std::string, Op>;
void fuse(Program &program, const Ops &ops);                             // fuses sequences of rows
void count_all(Program &program, const std::vector<std::string> &names); // names: operation of each row
void uncount(const Warp &w, const In *in); // takes back the count of a row that will run again
void at_label(Warp &w, const In *in);
void find_beyond(Program &program, const std::vector<std::string> &names); // before rows are fused
void begin_apart(Warp &w, const In *in);                                   // called when diverged lanes begin here
bool gone_around(const Warp &w, const In *in); // true if ended lanes have gone around this barrier

} // namespace ptx
