// Loads and stores.
#include "loads.hpp"

namespace ptx {
namespace {

// The registers may be wider than E: the low bytes are stored.
template <class E, class R, int V> struct Store {
  template <bool M> static void run(Warp &w, const In *in) {
    const Lanes at = M ? Lanes{0, unknown} : all_places(w, in, sizeof(E) * V, writes);
    if (at.spacing == unknown) {
      if (!one_by_one(w, in) || (Flags{in->flags}.strong() && overtaken(w, in))) return;
      NEXT;
    }
    const Registers<R, V> from(w, in);
    if (at.spacing == in_a_row) {
      uint8_t *start = first_place(w, in, at);
      E *p = reinterpret_cast<E *>(start);
      const R *x = from.d[0], *y = from.d[V > 1 ? 1 : 0], *z = from.d[V > 2 ? 2 : 0], *u = from.d[V > 2 ? 3 : 0];
      if constexpr (V == 1) {
        LANES p[i] = E(x[i]);
      } else if constexpr (V == 2) {
        LANES p[2 * i] = E(x[i]), p[2 * i + 1] = E(y[i]);
      } else if constexpr (V == 4) {
        LANES p[4 * i] = E(x[i]), p[4 * i + 1] = E(y[i]), p[4 * i + 2] = E(z[i]), p[4 * i + 3] = E(u[i]);
      } else {
        for (int k = 0; k < V; ++k)
          for (int i = 0; i < warp_size; ++i) p[V * i + k] = E(from.d[k][i]);
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
  put<Load<E, R, 1>>(ops, "ld." + name), put<Load<E, R, 2>>(ops, "ld.v2." + name);
  put<Load<E, R, 4>>(ops, "ld.v4." + name);
  if constexpr (sizeof(E) == 4 && sizeof(R) == 4) put<Load<E, R, 8>>(ops, "ld.v8." + name);
  if constexpr (std::is_unsigned_v<E>) {
    put<Store<E, R, 1>>(ops, "st." + name), put<Store<E, R, 2>>(ops, "st.v2." + name);
    put<Store<E, R, 4>>(ops, "st.v4." + name);
    if constexpr (sizeof(E) == 4 && sizeof(R) == 4) put<Store<E, R, 8>>(ops, "st.v8." + name);
  }
}

struct Prefetch {
  [[gnu::noinline]] static bool checked(Warp &w, const In *in) {
    uint8_t *at[warp_size];
    return places(w, in, 1, reads, at);
  }
  static void run(Warp &w, const In *in) { // a line of L2: only the check
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
