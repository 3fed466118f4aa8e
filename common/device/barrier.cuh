// All waiting between blocks: every spin loop of the lab is in this file, and every one has a bound.
#pragma once
#include "params.cuh"

// Polls before a waiting block gives up: tens of seconds, where the longest stage takes milliseconds.
constexpr unsigned spin_limit = 1u << 25;
constexpr unsigned spin_grace = spin_limit / 16; // polls that those who wait too are given to say so

// Leaves who waits where in `waits`, which outlives the kernel, and stops it.
[[noreturn]] DEVICE void give_up(const Context &c, Stage stage, int layer) {
  unsigned *mine = c.waits + wait_words * port::block();
  mine[0] = 1 + static_cast<unsigned>(stage);
  mine[1] = layer;
  mine[2] = port::load_acquire(c.state + state_at::arrived);
  mine[3] = port::load_acquire(c.state + state_at::epoch);
  for (unsigned polls = 0; polls < spin_grace; ++polls) port::spin_pause();
  port::trap();
}

// Polls until `done()`.
template <class Done> DEVICE void spin_until(const Context &c, Stage stage, int layer, Done done) {
  for (unsigned polls = 0; !done(); ++polls) {
    if (polls == spin_limit) give_up(c, stage, layer);
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
