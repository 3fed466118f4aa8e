// Loads, stores, and atomics; the latter lane by lane, in a seeded order.
#include "halves.hpp"
#include "loads.hpp"

namespace ptx {
namespace {

// True if another warp takes its turn after this access, which others may wait for; the group goes on after `in`.
bool overtaken(Warp &w, const In *in) {
  if (!w.grid->launch.strict || w.grid->below(4)) return false;
  park(w, in + 1, Wait::ready);
  w.fuel = -1;
  return true;
}

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
      for (int k = 0; k < V; ++k) {
        const R *a = from.d[k];
        LANES p[V * i + k] = E(a[i]);
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
    for (const int lane : Each{w.mask}) {
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

// atom d, [a], b, c and red [a], b. F makes the new value of the old one, b and c. Subnormal numbers are zeros only for
// f32 in global memory.
template <class T, class F> void atomic(Warp &w, const In *in) {
  Grid &grid = *w.grid;
  const T *b = w.reg<T>(in->b), *c = w.reg<T>(in->c);
  T *d = w.reg<T>(in->d);
  const uint32_t turned = grid.launch.strict ? grid.below(warp_size) : 0;
  for (uint32_t i = 0; i < warp_size; ++i) {
    const int lane = int(i ^ turned);
    if (!on(w.mask, lane)) continue;
    uint8_t *at = place(w, in, lane, sizeof(T), reads | writes);
    if (!at || (grid.races && !grid.races->atomic(w, in, lane, at, sizeof(T)))) return;
    T &word = *reinterpret_cast<T *>(at);
    const T before = word;
    if constexpr (std::is_floating_point_v<T>) {
      const Mode mode(sizeof(T) == 4 && size_t(at - w.block->memory.data()) >= w.block->memory.size());
      word = made(F{}(before, b[lane], c[lane]));
    } else {
      word = F{}(before, b[lane], c[lane]);
    }
    if (in->d) d[lane] = before;
    grid.touch(at, sizeof(T));
  }
  if (overtaken(w, in)) return;
  GO_ON;
}

template <class T, class F> void both(Ops &ops, const std::string &name, F) {
  put(ops, "atom." + name, atomic<T, F>), put(ops, "red." + name, atomic<T, F>);
}

template <class T> void numbers(Ops &ops, const std::string &t) {
  both<T>(ops, "min." + t, [](T x, T b, T) { return b < x ? b : x; });
  both<T>(ops, "max." + t, [](T x, T b, T) { return b > x ? b : x; });
}

template <class T> void words(Ops &ops, const std::string &t) {
  both<T>(ops, "add." + t, [](T x, T b, T) { return T(x + b); });
  both<T>(ops, "and." + t, [](T x, T b, T) { return T(x & b); });
  both<T>(ops, "or." + t, [](T x, T b, T) { return T(x | b); });
  both<T>(ops, "xor." + t, [](T x, T b, T) { return T(x ^ b); });
  both<T>(ops, "exch." + t, [](T, T b, T) { return b; });
  both<T>(ops, "cas." + t, [](T x, T b, T c) { return x == b ? c : x; });
}

// Sums of 16-bit floats, alone or two in a word; subnormal numbers are kept (noftz).
template <class H, class U> void half_sums(Ops &ops, const std::string &t) {
  both<U>(ops, "add." + t, [](U x, U b, U) {
    const Mode mode(false);
    return by_halves<H>([](double p, double q, double) { return p + q; }, x, b, U(0));
  });
}

void prefetch(Warp &w, const In *in) { // a line of L2: only the check
  for (const int lane : Each{w.mask})
    if (!place(w, in, lane, 1, reads)) return;
  GO_ON;
}

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
  put(ops, "prefetch", prefetch);
  words<uint32_t>(ops, "b32"), words<uint64_t>(ops, "b64");
  numbers<uint32_t>(ops, "u32"), numbers<int32_t>(ops, "s32");
  numbers<uint64_t>(ops, "u64"), numbers<int64_t>(ops, "s64");
  both<uint32_t>(ops, "inc.u32", [](uint32_t x, uint32_t b, uint32_t) { return x >= b ? 0 : x + 1; });
  both<uint32_t>(ops, "dec.u32", [](uint32_t x, uint32_t b, uint32_t) { return x == 0 || x > b ? b : x - 1; });
  both<float>(ops, "add.f32", [](float x, float b, float) { return x + b; });
  half_sums<Half, uint16_t>(ops, "f16"), half_sums<Half, uint32_t>(ops, "f16x2");
  half_sums<Brain, uint16_t>(ops, "bf16"), half_sums<Brain, uint32_t>(ops, "bf16x2");
  both<uint16_t>(ops, "cas.b16", [](uint16_t x, uint16_t b, uint16_t c) { return x == b ? c : x; });
  both<double>(ops, "add.f64", [](double x, double b, double) { return x + b; });
}

} // namespace ptx
