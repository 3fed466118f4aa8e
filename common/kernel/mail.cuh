// Flag-in-data: a word of the mail holds the sentinel `unwritten` until its value is stored; every thread that needs
// the value polls the word. This takes one round trip to L2; a barrier takes two, and the load of the result a third.
//
// The mail is a double buffer, for even and for odd turns, which count the kernel's steps since the reset. The thread
// that publishes a word resets the same word of the next turn to `unwritten`. No block still reads that: its
// readers, a turn ago, have passed the barriers between two steps, which also order the reset before the next polls.
#pragma once
#include "barrier.cuh"
#include "reduce.cuh"

// The sentinel (NOT_SENT in layout.py).
constexpr unsigned unwritten = 0xffffffffu;

// First word of a block's report when it waited for values of stage S.
template <Stage S> constexpr unsigned waited_for = 1u << 16 | (1 + static_cast<unsigned>(S));

// The place in the mail of element 0 of the result of stage S; `turn` is that of the step that publishes it.
template <Stage S> DEVICE float *mail(const Context &c, unsigned turn, int layer) {
  return tap<S>(c, layer) + (scratch_at::mail - scratch_at::layers) + turn % 2 * scratch_at::mail_size;
}

// Publishes element i. A value that looks unwritten becomes another NaN.
template <Stage S> DEVICE void send(const Context &c, int layer, int i, float value) {
  const unsigned bits = __float_as_uint(value);
  // equivalent: operands swapped: no arithmetic of a GPU makes that NaN
  store_relaxed(mail<S>(c, c.turn, layer) + i, bits == unwritten ? unwritten >> 1 : bits);
  store_relaxed(mail<S>(c, c.turn + 1, layer) + i, unwritten);
}

// Waits for `Packets` packets of four elements, from element i on, in runs as in load_floats; those from `end` on are
// skipped. Arrival orders no other access. Called by any number of threads; a poll costs a request for each line that
// the warp touches, so neighbouring lanes should poll neighbouring packets.
template <Stage S, int Run, int Apart, int Packets>
DEVICE void arrive_by_value(const Context &c, int layer, int i, int end, Packet<16> (&to)[Packets]) {
  const auto at = [=](int p) { return i + in_runs<Run, Apart>(4 * p); };
  const float *from = mail<S>(c, c.turn, layer);
  const auto arrived = [&] {
    bool all = true;
    UNROLL
    // equivalent: operands swapped: the loop after the wait only counts; without the one in the wait nothing arrives
    for (int p = 0; p < Packets; ++p)
      if (at(p) < end) to[p] = load_relaxed(from + at(p));
    UNROLL
    for (int w = 0; w < 4 * Packets; ++w) all = all && (to[w / 4].word[w % 4] != unwritten || at(w / 4) >= end);
    return all;
  };
  const auto report = [&] {
    int missing = 0;
    UNROLL
    for (int w = 0; w < 4 * Packets; ++w) // the last that is missing
      if (to[w / 4].word[w % 4] == unwritten && at(w / 4) < end) missing = w;
    report_wait(c, waited_for<S>, layer, at(missing / 4) + missing % 4, 0);
  };
  spin_until(arrived, report);
}
