// Grid barriers and waiting: the only spin loop of a decode kernel is here, and it is bounded.
#pragma once
#include "params.cuh"

// Polls before a waiting block reports that it gives up: tens of seconds, where the longest stage takes milliseconds.
constexpr unsigned spin_limit = 1u << 25;

// Stores stage, layer and two more words in this block's part of `waits`, which the host can read after the trap.
DEVICE void report_wait(const Context &c, unsigned stage, int layer, unsigned first, unsigned second) {
  unsigned *mine = c.waits + wait_words * int(blockIdx.x);
  mine[0] = stage;
  mine[1] = layer;
  mine[2] = first;
  mine[3] = second;
}

// Polls until `done()` is true. `done` must load with acquire order whatever the caller reads afterwards.
// After `spin_limit` polls it calls `report()` and never returns: it polls as often again before it stops the kernel,
// so that blocks that began to wait later report before the trap. It pauses between polls.
template <class Done, class Report> DEVICE void spin_until(Done done, Report report) {
  // Unrolled, the pauses of one kernel would be thousands of instructions.
  ROLLED
  for (unsigned polls = 0;; ++polls) {
    if (done() && polls <= spin_limit) return;
    // not executed: a launch that passes waits less; tests/ptx/test_waiting.py gives up
    if (polls == spin_limit) report();
    // not executed: a launch that passes waits less; tests/ptx/test_waiting.py gives up
    if (polls == 2 * spin_limit) trap();
    __nanosleep(32);
  }
}

// spin_until for the one thread of a block that waits at a grid barrier; reports the barrier's words.
template <class Done> DEVICE void wait_at_barrier(const Context &c, Stage stage, int layer, Done done) {
  spin_until(done, [&] {
    const unsigned arrived = load_acquire(c.state + state_at::arrived);
    report_wait(c, 1 + static_cast<unsigned>(stage), layer, arrived, load_acquire(c.state + state_at::epoch));
  });
}

// First word of a block's report when it waited for an Mbarrier.
constexpr unsigned waited_for_phase = 1u << 17;

// Waits until phase[n] of each of `N` Mbarriers is complete; what copies brought and arriving threads wrote may then be
// read. Each turn polls all of them. Called by any number of threads.
template <int N>
DEVICE void wait_for_phases(const Context &c, Mbarrier *const (&barrier)[N], const unsigned (&phase)[N]) {
  bool there[N] = {};
  const auto complete = [&] {
    bool all = true;
    UNROLL
    for (int n = 0; n < N; ++n) all = (there[n] = mbarrier_try_wait(barrier[n], phase[n])) && all;
    return all;
  };
  spin_until(complete, [&] {
    UNROLL
    for (int n = 0; n < N; ++n) { // the last that is not complete
      if (there[n]) continue;
      const char *at = reinterpret_cast<const char *>(barrier[n]), *start = static_cast<const char *>(c.shared);
      report_wait(c, waited_for_phase, 0, phase[n], unsigned(at - start));
    }
  });
}
DEVICE void wait_for_phase(const Context &c, Mbarrier *barrier, unsigned phase) {
  wait_for_phases<1>(c, {barrier}, {phase});
}

// The grid barrier of a cooperative launch: no block leaves before every block has arrived. Called by all threads of
// the grid, which must be resident together. Writes of all threads before it are visible to all threads after it: the
// arrival is a release, and the load that sees the last arrival is an acquire.
// One word counts: block 0 adds 2^31 - (blocks - 1) and every other block adds 1, so the last arrival flips the top bit
// and leaves the low bits 0. Nothing is reset and nothing can overflow.
DEVICE void grid_barrier(const Context &c, Stage stage, int layer) {
  block_barrier(); // orders the writes of all threads before thread 0's release
  if (threadIdx.x == 0) {
    unsigned *arrived = c.state + state_at::arrived;
    const unsigned mine = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    const unsigned before = add_acq_rel(arrived, mine);
    wait_at_barrier(c, stage, layer, [&] { return ((before ^ load_acquire(arrived)) & 0x80000000u) != 0; });
  }
  block_barrier(); // orders thread 0's acquire before the reads of all threads
}

// A grid barrier for a plain launch, with the same memory order. The grid must be resident, which the device checks
// before the launch. Blocks count their arrivals in one cache line and poll the epoch in another, so polls do not delay
// arrivals. The last block to arrive clears the count and then stores the next epoch with release order.
// Threads other than 0 call `meanwhile()` before they wait at the block barrier.
template <class Meanwhile> DEVICE void epoch_barrier(const Context &c, Stage stage, int layer, Meanwhile meanwhile) {
  block_barrier(); // orders the writes of all threads before thread 0's release
  if (threadIdx.x == 0) {
    unsigned *arrived = c.state + state_at::arrived, *epoch = c.state + state_at::epoch;
    const unsigned now = load_acquire(epoch); // cannot change before this block has arrived
    if (add_acq_rel(arrived, 1) == gridDim.x - 1) {
      *arrived = 0;
      store_release(epoch, now + 1);
    } else {
      wait_at_barrier(c, stage, layer, [&] { return load_acquire(epoch) != now; });
    }
  } else {
    meanwhile();
  }
  block_barrier(); // orders thread 0's acquire before the reads of all threads
}
