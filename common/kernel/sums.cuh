// Counted sums of o_proj: a 64-bit word holds a sum in fixed point and two counts. Each addend is one atomic add; a
// word is complete when its count is, and every thread that needs the sum polls it. Integers add up to the same in any
// order, so a run repeats bit for bit.
//
// Fields of a word, from the top: the sum in units of 2^-32, a count of bad addends, a count of all (5 bits each for 16
// heads). An addend is bad if it is NaN or so large that the sum could overflow: it counts, adds nothing, and makes the
// sum NaN.
//
// The words are a double buffer, for even and for odd turns, as the mail is. A sum begins at -1, an unwritten word. The
// thread that adds the first head's product to a word resets the word of the next turn: that turn's additions and polls
// come after the barriers between two steps, those of the turn before came before them.
#pragma once
#include "mail.cuh"

constexpr int bits_of(unsigned n) { return n == 0 ? 0 : 1 + bits_of(n / 2); }

constexpr unsigned addends = model::heads; // addends per word
// equivalent: 2 -> 3: a sum that begins higher up has less room, which addend_limit follows
constexpr int count_bits = bits_of(addends), sum_at = 2 * count_bits;
constexpr unsigned count_mask = (1u << count_bits) - 1;
constexpr float units = 4294967296.0f; // units of the sum in 1.0
// Bound of an addend: all of them together fill half of the sum's range.
constexpr float addend_limit = float(1ull << (62 - sum_at)) / units / addends;

// What to add to a word for `value`: the value and its count.
DEVICE unsigned long long addend(float value) {
  if (!(fabsf(value) < addend_limit)) return 1 << count_bits | 1;
  return static_cast<unsigned long long>(llrintf(value * units)) << sum_at | 1;
}

// Number of addends in a word.
DEVICE unsigned counted(unsigned long long word) { return unsigned(word + 1) & count_mask; }

// The sum of a complete word.
DEVICE float sum_of(unsigned long long word) {
  const unsigned long long added = word + 1;
  if ((added >> count_bits & count_mask) != 0) return __uint_as_float(0x7fc00000u);
  return float(static_cast<long long>(added) >> sum_at) / units;
}

// The words of a layer; `turn` is that of the step that adds to them.
DEVICE unsigned long long *sums(const Context &c, unsigned turn, int layer) {
  auto *first = reinterpret_cast<unsigned long long *>(c.scratch + scratch_at::sums);
  return first + (turn % 2 * size_t(model::layers) + layer) * model::hidden;
}

// Makes word i of the next turn unwritten, in halves: barriers order them before and after all accesses of the whole.
DEVICE void clear_sum(const Context &c, int layer, int i) {
  float *next = reinterpret_cast<float *>(sums(c, c.turn + 1, layer) + i);
  store_relaxed(next, unwritten);
  store_relaxed(next + 1, unwritten);
}

// Waits for the sums of `N` rows from row i on, in runs as in load_floats. Arrival orders no other access. Any
// number of threads may call it.
template <int N, int Run, int Apart> DEVICE Floats<N> arrive_sums(const Context &c, int layer, int i) {
  const unsigned long long *from = sums(c, c.turn, layer) + i;
  unsigned long long word[N];
  const auto arrived = [&] {
    bool all = true;
    UNROLL
    for (int w = 0; w < N; w += 2) load_relaxed_pair(from + in_runs<Run, Apart>(w), word + w);
    UNROLL
    for (int w = 0; w < N; ++w) all = all && counted(word[w]) == addends;
    return all;
  };
  const auto report = [&] {
    int missing = 0;
    UNROLL
    for (int w = 0; w < N; ++w) // the last incomplete one is named
      if (counted(word[w]) != addends) missing = w;
    report_wait(c, waited_for<Stage::o_proj>, layer, i + in_runs<Run, Apart>(missing), 0);
  };
  spin_until(arrived, report);
  Floats<N> sum;
  UNROLL
  for (int w = 0; w < N; ++w) sum.value[w] = sum_of(word[w]);
  return sum;
}
