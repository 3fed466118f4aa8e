// Loads, for all lanes at once where their places are contiguous.
#pragma once
#include "places.hpp"

namespace ptx {

// Notes a strong load as a poll. False if the group has polled there without a change since: it sleeps until one.
inline bool looked(Warp &w, const In *in, uint8_t *const *at) {
  const int first = std::countr_zero(w.mask);
  if (w.grid->would_sleep(w, first, at[first])) return uncount(w, in), w.grid->sleep(w, in), false;
  for (const int lane : Each{w.mask}) w.grid->look(w, lane, at[lane]);
  return true;
}

template <class R, int V> struct Registers { // a vector; `more` has all but the first
  R *d[V];
  Registers(const Warp &w, const In *in) {
    d[0] = w.reg<R>(in->d);
    for (int k = 1; k < V; ++k) d[k] = w.reg<R>(w.program->more[in->more + uint32_t(k) - 1]);
  }
};

// at(lane, place) for each lane; the place is the lane's address plus `added`.
template <class F> inline void each_place(const Warp &w, const In *in, uint64_t added, F at) {
  const bool wide = Flags{in->flags}.wide();
  for (int i = 0; i < warp_size; ++i) at(i, reinterpret_cast<uint8_t *>(address_of(w, in->a, wide, i) + added));
}

// Software prefetch: a loop reads at a constant, large stride, so the next address is known.
inline void fetch_next(const In *in, const void *now, uint32_t bytes) {
  const auto at = reinterpret_cast<uint64_t>(now), next = at + (at - in->last);
  in->last = at;
  if (next == at) return;
  for (uint32_t line = 0; line < bytes; line += 64) __builtin_prefetch(reinterpret_cast<const void *>(next + line));
}

// V elements of type E, extended to the registers' type R.
template <class E, class R, int V> struct Load {
  template <bool M> static void run(Warp &w, const In *in) {
    const Lanes at = M ? Lanes{0, unknown} : all_places(w, in, sizeof(E) * V, reads);
    if (at.spacing == unknown) {
      if (!one_by_one(w, in)) return;
      NEXT;
    }
    const Registers<R, V> to(w, in);
    alignas(64) E gathered[warp_size * V];
    const E *p = gathered;
    if (at.spacing == apart)
      each_place(w, in, at.added,
                 [&](int i, const uint8_t *from) { std::memcpy(gathered + V * i, from, sizeof(E) * V); });
    else
      p = reinterpret_cast<const E *>(first_place(w, in, at));
    if (at.spacing == in_a_row) fetch_next(in, p, warp_size * V * sizeof(E));
    if (at.spacing == the_same) {
      for (int k = 0; k < V; ++k) {
        const R value = p[k];
        R *d = to.d[k];
        LANES d[i] = value;
      }
    } else if constexpr (V == 4) { // the most frequent: at once
      R *x = to.d[0], *y = to.d[1], *z = to.d[2], *u = to.d[3];
      LANES x[i] = p[4 * i], y[i] = p[4 * i + 1], z[i] = p[4 * i + 2], u[i] = p[4 * i + 3];
    } else {
      for (int k = 0; k < V; ++k) {
        R *d = to.d[k];
        LANES d[i] = p[V * i + k];
      }
    }
    NEXT;
  }

  // False where the group waits, or after a fault.
  [[gnu::noinline]] static bool one_by_one(Warp &w, const In *in) {
    uint8_t *from[warp_size];
    if (!places(w, in, sizeof(E) * V, reads, from)) return false;
    if (Flags{in->flags}.strong() && !looked(w, in, from)) return false;
    if (w.grid->races && !w.grid->races->load(w, in, w.mask, from, sizeof(E), V)) return false;
    const Registers<R, V> to(w, in);
    for (const int lane : Each{w.mask})
      for (int k = 0; k < V; ++k) to.d[k][lane] = reinterpret_cast<const E *>(from[lane])[k];
    return true;
  }
};

} // namespace ptx
