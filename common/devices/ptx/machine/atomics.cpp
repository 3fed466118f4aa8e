// atom and red: one lane after another, in an order by seed.
#include "halves.hpp"
#include "places.hpp"

namespace ptx {
namespace {

// Place of a lane's word, after the race detector's check; null after a fault.
uint8_t *word_of(Warp &w, const In *in, int lane, uint32_t bytes) {
  const Flags f{in->flags};
  const uint64_t address = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm);
  uint8_t *at = place(w, in, f.space(), lane, address, bytes, reads | writes);
  return at && w.grid->races && !w.grid->races->atomic(w, in, lane, at, bytes) ? nullptr : at;
}

// atom d, [a], b, c and red [a], b. F makes the new value of the old one, b and c.
template <class T, class F> struct Atomic {
  static void run(Warp &w, const In *in) {
    Grid &grid = *w.grid;
    const T *b = w.reg<T>(in->b), *c = w.reg<T>(in->c);
    T *d = w.reg<T>(in->d);
    const uint32_t turned = grid.launch.strict ? grid.below(warp_size) : 0;
    for (int i = 0; i < warp_size; ++i) {
      const int lane = int(uint32_t(i) ^ turned);
      if (!on(w.mask, lane)) continue;
      uint8_t *at = word_of(w, in, lane, sizeof(T));
      if (!at) return;
      T &word = *reinterpret_cast<T *>(at);
      const T before = word, after = F{}(before, b[lane], c[lane]);
      word = after;
      if (in->d) d[lane] = before;
      grid.touch(at, sizeof(T));
    }
    if (overtaken(w, in)) return;
    GO_ON;
  }
};

template <class T, class F> void both(Ops &ops, const std::string &name, F) {
  put<Atomic<T, F>>(ops, "atom." + name);
  put<Atomic<T, F>>(ops, "red." + name);
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
    Mode<false> mode;
    return by_halves<H>([](double p, double q, double) { return p + q; }, x, b, U(0));
  });
}

} // namespace

void add_atomics(Ops &ops) {
  words<uint32_t>(ops, "b32"), words<uint64_t>(ops, "b64");
  numbers<uint32_t>(ops, "u32"), numbers<int32_t>(ops, "s32"), numbers<uint64_t>(ops, "u64"),
      numbers<int64_t>(ops, "s64");
  both<uint32_t>(ops, "inc.u32", [](uint32_t x, uint32_t b, uint32_t) { return x >= b ? 0 : x + 1; });
  both<uint32_t>(ops, "dec.u32", [](uint32_t x, uint32_t b, uint32_t) { return x == 0 || x > b ? b : x - 1; });
  both<float>(ops, "add.f32", [](float x, float b, float) { return x + b; });
  half_sums<Half, uint16_t>(ops, "f16"), half_sums<Half, uint32_t>(ops, "f16x2");
  half_sums<Brain, uint16_t>(ops, "bf16"), half_sums<Brain, uint32_t>(ops, "bf16x2");
  both<uint16_t>(ops, "cas.b16", [](uint16_t x, uint16_t b, uint16_t c) { return x == b ? c : x; });
  both<double>(ops, "add.f64", [](double x, double b, double) { return x + b; });
}

} // namespace ptx
