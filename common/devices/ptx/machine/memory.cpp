// Loads and stores.
#include "places.hpp"

namespace ptx {
namespace {

// V elements of type E; the registers have the type R, to which E is extended.
template <class E, class R, int V> struct Load {
  template <bool M> static void run(Warp &w, const In *in) {
    const Flags f{in->flags};
    const uint32_t *more = V > 1 ? &w.program->more[in->more] : nullptr;
    R *d[V];
    d[0] = w.reg<R>(in->d);
    for (int k = 1; k < V; ++k) d[k] = w.reg<R>(more[k - 1]);
    if (!M && !f.strong()) {
      if (Even e; even<reads>(w, in, sizeof(E) * V, e)) {
        const uint8_t *from = e.at;
        if (e.stride == int64_t(sizeof(E) * V)) {
          const E *p = reinterpret_cast<const E *>(from);
          if constexpr (V == 1) {
            LANES d[0][i] = p[i];
          } else if constexpr (V == 2) {
            R *x = d[0], *y = d[1];
            LANES x[i] = p[2 * i], y[i] = p[2 * i + 1];
          } else {
            R *x = d[0], *y = d[1], *z = d[2], *u = d[3];
            LANES x[i] = p[4 * i], y[i] = p[4 * i + 1], z[i] = p[4 * i + 2], u[i] = p[4 * i + 3];
          }
        } else if (e.stride == 0) {
          const E *p = reinterpret_cast<const E *>(from);
          for (int k = 0; k < V; ++k) {
            const R value = p[k];
            R *to = d[k];
            LANES to[i] = value;
          }
        } else {
          const int64_t stride = e.stride;
          for (int k = 0; k < V; ++k) {
            R *to = d[k];
            for (int i = 0; i < warp_size; ++i)
              to[i] = *reinterpret_cast<const E *>(from + i * stride + int64_t(k * sizeof(E)));
          }
        }
        NEXT;
      }
    }
    if (uint64_t added; !M && !f.strong() && bounded(w, in, sizeof(E) * V, added)) {
      const uint64_t *a = w.reg<uint64_t>(in->a);
      for (int i = 0; i < warp_size; ++i) {
        E element[V];
        std::memcpy(element, reinterpret_cast<const void *>(a[i] + added), sizeof element);
        for (int k = 0; k < V; ++k) d[k][i] = element[k];
      }
      NEXT;
    }
    const uint32_t mask = w.mask;
    uint8_t *from[warp_size];
    for (uint32_t left = mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      const uint64_t address = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
      from[lane] = place(w, in, f.space(), lane, address, sizeof(E) * V, reads);
      if (!from[lane]) return;
    }
    if (f.strong()) { // a look: whoever looks again, and nothing has changed, sleeps until something does
      const int lane = __builtin_ctz(mask);
      if (w.grid->would_sleep(w, lane, from[lane])) return w.grid->sleep(w, in);
      for (uint32_t left = mask; left; left &= left - 1)
        w.grid->look(w, __builtin_ctz(left), from[__builtin_ctz(left)], sizeof(E) * V);
    }
    if (w.grid->races)
      if (!w.grid->races->load(w, in, mask, from, sizeof(E), V)) return;
    for (uint32_t left = mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      for (int k = 0; k < V; ++k) d[k][lane] = reinterpret_cast<const E *>(from[lane])[k];
    }
    NEXT;
  }
};

// The registers may be wider than E: the low bytes are stored.
template <class E, class R, int V> struct Store {
  template <bool M> static void run(Warp &w, const In *in) {
    const Flags f{in->flags};
    const uint32_t *more = V > 1 ? &w.program->more[in->more] : nullptr;
    const R *d[V];
    d[0] = w.reg<R>(in->d);
    for (int k = 1; k < V; ++k) d[k] = w.reg<R>(more[k - 1]);
    Grid &grid = *w.grid;
    if (!M && !f.strong() && !grid.sleepers) {
      if (Even e; even<writes>(w, in, sizeof(E) * V, e)) {
        if (e.stride == int64_t(sizeof(E) * V)) {
          E *p = reinterpret_cast<E *>(e.at);
          if constexpr (V == 1) {
            LANES p[i] = E(d[0][i]);
          } else {
            for (int i = 0; i < warp_size; ++i)
              for (int k = 0; k < V; ++k) p[V * i + k] = E(d[k][i]);
          }
          ++grid.progress;
          NEXT;
        }
      }
    }
    uint8_t *to[warp_size];
    const uint32_t mask = w.mask;
    for (uint32_t left = mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      const uint64_t address = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
      to[lane] = place(w, in, f.space(), lane, address, sizeof(E) * V, writes);
      if (!to[lane]) return;
    }
    if (grid.races) {
      uint64_t values[warp_size][V];
      for (int k = 0; k < V; ++k)
        for (int i = 0; i < warp_size; ++i) values[i][k] = uint64_t(E(d[k][i]));
      if (!grid.races->store(w, in, mask, to, sizeof(E), V, &values[0][0])) return;
    }
    for (uint32_t left = mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      for (int k = 0; k < V; ++k) reinterpret_cast<E *>(to[lane])[k] = E(d[k][lane]);
      grid.touch(to[lane], sizeof(E) * V);
    }
    NEXT;
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
  template <bool M> static void run(Warp &w, const In *in) { // of a line of L2: nothing but the check
    const Flags f{in->flags};
    for (uint32_t left = w.mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      const uint64_t address = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
      if (!place(w, in, f.space(), lane, address, 1, reads)) return;
    }
    NEXT;
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
