// All waiting between blocks: every spin loop of the lab is in this file, and every one has a bound.
#pragma once
#include "params.cuh"

// Polls before a waiting block gives up: tens of seconds, where the longest stage takes milliseconds.
constexpr unsigned spin_limit = 1u << 25;

// Polls until `done()`. A block that gives up says who it is and where it waits (state: report) and stops the kernel.
template <class Done> DEVICE void spin_until(const Context &c, Stage stage, int layer, Done done) {
  for (unsigned polls = 0; !done(); ++polls) {
    if (polls == spin_limit) {
      unsigned *report = c.state + state_at::report;
      report[1] = port::block();
      report[2] = static_cast<unsigned>(stage);
      report[3] = layer;
      report[4] = port::load_acquire(c.state + state_at::arrived);
      port::add_acq_rel(report, 1);
      port::trap();
    }
    port::spin_pause();
  }
}

// Nobody leaves before every block has come: what a cooperative launch offers. One word: block 0 adds 2^31 - (blocks -
// 1) and the others 1, so the top bit flips exactly when the last arrives and the low bits are 0 again. Nothing is
// reset and nothing can overflow.
DEVICE void grid_barrier(const Context &c, Stage stage, int layer) {
  port::count_grid_barrier();
  port::block_barrier(); // what all threads wrote comes before thread 0's release
  if (port::thread() == 0) {
    unsigned *arrived = c.state + state_at::arrived;
    const unsigned mine = port::block() == 0 ? 0x80000000u - (port::blocks() - 1) : 1u;
    const unsigned before = port::add_acq_rel(arrived, mine);
    spin_until(c, stage, layer, [&] { return ((before ^ port::load_acquire(arrived)) & 0x80000000u) != 0; });
  }
  port::block_barrier(); // nobody reads before thread 0's acquire
}

// The same for a launch that is not cooperative: arrivals on one line, the epoch everybody waits for on another, so
// that those who poll do not slow down those who arrive. The last to arrive clears the count and opens the next epoch.
// `meanwhile()` is what the threads that need not wait do until thread 0 has seen it.
template <class Meanwhile> DEVICE void epoch_barrier(const Context &c, Stage stage, int layer, Meanwhile meanwhile) {
  port::count_grid_barrier();
  port::block_barrier(); // what all threads wrote comes before thread 0's release
  if (port::thread() == 0) {
    unsigned *arrived = c.state + state_at::arrived, *epoch = c.state + state_at::epoch;
    const unsigned now = port::load_acquire(epoch); // cannot change before this block has arrived
    if (port::add_acq_rel(arrived, 1) == unsigned(port::blocks()) - 1) {
      *arrived = 0;
      port::store_release(epoch, now + 1);
    } else {
      spin_until(c, stage, layer, [&] { return port::load_acquire(epoch) != now; });
    }
  } else {
    meanwhile();
  }
  port::block_barrier(); // nobody reads before thread 0's acquire
}
