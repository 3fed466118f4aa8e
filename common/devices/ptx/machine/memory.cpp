// Loads and stores.
#include "places.hpp"

namespace ptx {
namespace {

// A poll of words written by others: a group that polls again without a change sleeps until a change.
bool looked(Warp &w, const In *in, uint8_t *const *at, uint32_t bytes) {
  const int first = __builtin_ctz(w.mask);
  if (w.grid->would_sleep(w, first, at[first])) return uncount(w, in), w.grid->sleep(w, in), false;
  for (uint32_t left = w.mask; left; left &= left - 1)
    w.grid->look(w, __builtin_ctz(left), at[__builtin_ctz(left)], bytes);
  return true;
}

template <class R, int V> struct Registers { // of a vector; `more` has all but the first
  R *d[V];
  Registers(const Warp &w, const In *in) {
    d[0] = w.reg<R>(in->d);
    for (int k = 1; k < V; ++k) d[k] = w.reg<R>(w.program->more[in->more + uint32_t(k) - 1]);
  }
};

// at(lane, place) for each lane; the place is the lane's address plus `added`.
template <class F> inline void each_place(const Warp &w, const In *in, uint64_t added, F at) {
  if (Flags{in->flags}.wide()) {
    const uint64_t *a = w.reg<uint64_t>(in->a);
    for (int i = 0; i < warp_size; ++i) at(i, reinterpret_cast<uint8_t *>(a[i] + added));
  } else {
    const uint32_t *a = w.reg<uint32_t>(in->a);
    for (int i = 0; i < warp_size; ++i) at(i, reinterpret_cast<uint8_t *>(a[i] + added));
  }
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
      p = reinterpret_cast<const E *>(address_of(w, in->a, Flags{in->flags}.wide(), 0) + at.added);
    if (at.spacing == in_a_row) fetch_next(in, p, warp_size * V * sizeof(E));
    if (at.spacing == the_same) {
      for (int k = 0; k < V; ++k) {
        const R value = p[k];
        R *d = to.d[k];
        LANES d[i] = value;
      }
    } else {
      R *x = to.d[0], *y = to.d[V > 1 ? 1 : 0], *z = to.d[V > 2 ? 2 : 0], *u = to.d[V > 2 ? 3 : 0];
      if constexpr (V == 1) {
        LANES x[i] = p[i];
      } else if constexpr (V == 2) {
        LANES x[i] = p[2 * i], y[i] = p[2 * i + 1];
      } else {
        LANES x[i] = p[4 * i], y[i] = p[4 * i + 1], z[i] = p[4 * i + 2], u[i] = p[4 * i + 3];
      }
    }
    NEXT;
  }

  // False where the group waits, or after a fault.
  [[gnu::noinline]] static bool one_by_one(Warp &w, const In *in) {
    uint8_t *from[warp_size];
    if (!places(w, in, sizeof(E) * V, reads, from)) return false;
    if (Flags{in->flags}.strong() && !looked(w, in, from, sizeof(E) * V)) return false;
    if (w.grid->races && !w.grid->races->load(w, in, w.mask, from, sizeof(E), V)) return false;
    const Registers<R, V> to(w, in);
    for (uint32_t left = w.mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      for (int k = 0; k < V; ++k) to.d[k][lane] = reinterpret_cast<const E *>(from[lane])[k];
    }
    return true;
  }
};

// The registers may be wider than E: the low bytes are stored.
template <class E, class R, int V> struct Store {
  template <bool M> static void run(Warp &w, const In *in) {
    const Lanes at = M ? Lanes{0, unknown} : all_places(w, in, sizeof(E) * V, writes);
    if (at.spacing == unknown) {
      if (!one_by_one(w, in)) return;
      NEXT;
    }
    const Registers<R, V> from(w, in);
    if (at.spacing == in_a_row) {
      uint8_t *start = reinterpret_cast<uint8_t *>(address_of(w, in->a, Flags{in->flags}.wide(), 0) + at.added);
      E *p = reinterpret_cast<E *>(start);
      const R *x = from.d[0], *y = from.d[V > 1 ? 1 : 0], *z = from.d[V > 2 ? 2 : 0], *u = from.d[V > 2 ? 3 : 0];
      if constexpr (V == 1) {
        LANES p[i] = E(x[i]);
      } else if constexpr (V == 2) {
        LANES p[2 * i] = E(x[i]), p[2 * i + 1] = E(y[i]);
      } else {
        LANES p[4 * i] = E(x[i]), p[4 * i + 1] = E(y[i]), p[4 * i + 2] = E(z[i]), p[4 * i + 3] = E(u[i]);
      }
      w.grid->touch(start, warp_size * sizeof(E) * V);
    } else {
      each_place(w, in, at.added, [&](int i, uint8_t *to) {
        for (int k = 0; k < V; ++k) reinterpret_cast<E *>(to)[k] = E(from.d[k][i]);
        w.grid->touch(to, sizeof(E) * V);
      });
    }
    NEXT;
  }

  [[gnu::noinline]] static bool one_by_one(Warp &w, const In *in) {
    uint8_t *to[warp_size];
    if (!places(w, in, sizeof(E) * V, writes, to)) return false;
    const Registers<R, V> from(w, in);
    if (w.grid->races) {
      uint64_t values[warp_size][V];
      for (int k = 0; k < V; ++k)
        for (int i = 0; i < warp_size; ++i) values[i][k] = uint64_t(E(from.d[k][i]));
      if (!w.grid->races->store(w, in, w.mask, to, sizeof(E), V, &values[0][0])) return false;
    }
    for (uint32_t left = w.mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      for (int k = 0; k < V; ++k) reinterpret_cast<E *>(to[lane])[k] = E(from.d[k][lane]);
      w.grid->touch(to[lane], sizeof(E) * V);
    }
    return true;
  }
};

template <class E, class R> void vectors(Ops &ops, const std::string &name) {
  put<Load<E, R, 1>>(ops, "ld." + name);
  if constexpr (sizeof(E) <= 8 && sizeof(E) == sizeof(R)) {
    put<Load<E, R, 2>>(ops, "ld.v2." + name), put<Store<E, R, 2>>(ops, "st.v2." + name);
    put<Load<E, R, 4>>(ops, "ld.v4." + name), put<Store<E, R, 4>>(ops, "st.v4." + name);
  }
  if constexpr (std::is_unsigned_v<E>) put<Store<E, R, 1>>(ops, "st." + name);
}

struct Prefetch {
  [[gnu::noinline]] static bool checked(Warp &w, const In *in) {
    uint8_t *at[warp_size];
    return places(w, in, 1, reads, at);
  }
  static void run(Warp &w, const In *in) { // of a line of L2: only the check
    if (!checked(w, in)) return;
    GO_ON;
  }
};

} // namespace

// ld.<element>.<register>: ld.u16.b32 extends 16 bits to a register of 32.
void add_memory(Ops &ops) {
  vectors<uint8_t, uint16_t>(ops, "u8.b16"), vectors<uint8_t, uint32_t>(ops, "u8.b32");
  vectors<uint8_t, uint64_t>(ops, "u8.b64"), vectors<int8_t, int16_t>(ops, "s8.b16");
  vectors<int8_t, int32_t>(ops, "s8.b32"), vectors<int8_t, int64_t>(ops, "s8.b64");
  vectors<uint16_t, uint16_t>(ops, "u16.b16"), vectors<uint16_t, uint32_t>(ops, "u16.b32");
  vectors<uint16_t, uint64_t>(ops, "u16.b64"), vectors<int16_t, int32_t>(ops, "s16.b32");
  vectors<int16_t, int64_t>(ops, "s16.b64"), vectors<uint32_t, uint32_t>(ops, "u32.b32");
  vectors<uint32_t, uint64_t>(ops, "u32.b64"), vectors<int32_t, int64_t>(ops, "s32.b64");
  vectors<uint64_t, uint64_t>(ops, "u64.b64");
  put<Prefetch>(ops, "prefetch");
}

} // namespace ptx
