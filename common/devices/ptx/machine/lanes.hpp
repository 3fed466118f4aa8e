// Loops over the lanes of a warp, vectorized by the compiler, and floating-point modes.
#pragma once
#include "machine.hpp"

#include <cmath>
#include <tuple>

#if defined(__SSE__)
#include <immintrin.h>
#endif

// Two registers are the same memory or disjoint, so lanes may be computed at once.
#define LANES _Pragma("GCC ivdep") for (int i = 0; i < ptx::warp_size; ++i)
#define NEXT return in[1].run[M](w, in + 1)
// As NEXT, for rare operations, whose single function serves whole and diverged warps.
#define GO_ON return in[1].run[w.mask != w.live](w, in + 1)

namespace ptx {

bool meets_anywhere(const In *in);
inline bool on(uint32_t mask, int lane) { return mask >> lane & 1; }

// The lanes of a mask, in order: for (const int lane : Each{mask}).
struct Each {
  uint32_t left;
  Each begin() const { return *this; }
  Each end() const { return {0}; }
  bool operator==(const Each &) const = default;
  int operator*() const { return std::countr_zero(left); }
  void operator++() { left &= left - 1; }
};

// The uniform value of a register, from the first active lane.
template <class T> inline T first(const Warp &w, uint32_t at) { return w.reg<T>(at)[std::countr_zero(w.mask)]; }

// d[lane] = value(lane): in all lanes, or by the mask.
template <bool M, class T, class F> inline void each(Warp &w, uint32_t at, F value) {
  T *d = w.reg<T>(at);
  if constexpr (!M) {
    LANES d[i] = value(i);
  } else {
    const uint32_t mask = w.mask;
    LANES d[i] = (mask >> i & 1) ? T(value(i)) : d[i];
  }
}

using Eight = float __attribute__((vector_size(32)));

// a b + c, rounded once.
inline Eight fused(Eight a, Eight b, Eight c) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < 8; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

template <class T> inline Eight line(const T *from) { // eight words, whatever they are
  Eight all;
  std::memcpy(&all, from, sizeof all);
  return all;
}

// Word with a bit set for each lane with a nonzero element.
inline uint32_t pack(const int32_t *t) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_loadu_si512(t), high = _mm512_loadu_si512(t + 16);
  return _mm512_test_epi32_mask(low, low) | uint32_t(_mm512_test_epi32_mask(high, high)) << 16;
#else
  uint32_t bits = 0;
  for (int i = 0; i < warp_size; ++i) bits |= uint32_t(t[i] != 0) << i;
  return bits;
#endif
}

// True if no bit is set in a vector of 64 bytes.
template <class V> inline bool all_zero(V v) {
#if defined(__AVX512F__)
  const auto words = __m512i(v);
  return _mm512_test_epi64_mask(words, words) == 0;
#else
  uint64_t words[8], any = 0;
  std::memcpy(words, &v, sizeof words);
  for (const uint64_t word : words) any |= word;
  return any == 0;
#endif
}

// d[lane] = a[from[lane]]; d and a are disjoint.
inline void permute(const uint32_t *a, const int *from, uint32_t *d) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_loadu_si512(a), high = _mm512_loadu_si512(a + 16);
  for (int i = 0; i < warp_size; i += 16)
    _mm512_storeu_si512(d + i, _mm512_permutex2var_epi32(low, _mm512_loadu_si512(from + i), high));
#else
  for (int i = 0; i < warp_size; ++i) d[i] = a[from[i]];
#endif
}

template <bool M> inline void set_predicate(Warp &w, uint32_t at, uint32_t bits) {
  uint32_t &p = *w.reg<uint32_t>(at);
  p = M ? (bits & w.mask) | (p & ~w.mask) : bits;
}

// Stores the result of a setp, combined with a predicate by imm: 0 alone, 1 and, 2 or, 3 xor, plus 4 to store the
// complement, too. more: place of the complement, then the predicate.
template <bool M> inline void set_combined(Warp &w, const In *in, uint32_t found) {
  if (in->imm == 0) return set_predicate<M>(w, in->d, found);
  const uint32_t *more = &w.program->more[in->more], other = *w.reg<uint32_t>(more[1]);
  const auto with = [&](uint32_t x) {
    const int64_t how = in->imm & 3;
    return how == 1 ? x & other : how == 2 ? x | other : how == 3 ? x ^ other : x;
  };
  const uint32_t no = with(~found);
  set_predicate<M>(w, in->d, with(found));
  if (in->imm & 4) set_predicate<M>(w, more[0], no);
}

// Floating-point modes of PTX: rounding, and flushing of subnormal numbers to zero. The executor runs in the mode of
// nvcc's fast default (nearest, flushed); an instruction of another mode changes it for itself.
enum Rounding : uint32_t { nearest, down, up, zero };
#if defined(__SSE__)
inline uint32_t get_mode() { return _mm_getcsr(); }
inline void set_mode(uint32_t mode) { asm volatile("ldmxcsr %0" ::"m"(mode) : "memory"); }
inline uint32_t mode_of(Rounding r, bool flush) { return 0x1f80u | uint32_t(r) << 13 | (flush ? 0x8040u : 0); }
#elif defined(__aarch64__)
inline uint32_t get_mode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return uint32_t(mode);
}
inline void set_mode(uint32_t mode) { asm volatile("msr fpcr, %0" ::"r"(uint64_t(mode)) : "memory"); }
inline uint32_t mode_of(Rounding r, bool flush) {
  constexpr uint32_t modes[] = {0, 2, 1, 3};
  return modes[r] << 22 | (flush ? 1u << 24 : 0);
}
#endif
struct Mode { // for the rest of a block
  explicit Mode(bool flush) { set_mode(mode_of(nearest, flush)); }
  ~Mode() { set_mode(mode_of(nearest, true)); }
};

template <class To> inline To bits(auto from) { return std::bit_cast<To>(from); }

// The canonical NaN of f32 results; with f64 a NaN operand is kept.
inline float made(float x) { return x != x ? bits<float>(0x7fffffffu) : x; }
inline double made(double x) { return x; }
template <class T> inline T saturated(T x) { return x > 0 ? (x < 1 ? x : T(1)) : T(0); } // a NaN is 0
// A subnormal number as a zero.
inline float flushed(float x) {
  const uint32_t u = bits<uint32_t>(x);
  return (u & 0x7f800000u) == 0 ? bits<float>(u & 0x80000000u) : x;
}

// d = f(a, b, c), or f of the first operands, for each lane. Registers have the types in G's signature, mostly f's own.
template <bool M, class F, class G, class D, class... A>
inline void each_of(Warp &w, const In *in, F f, D (G::*)(A...) const) {
  const uint32_t at[] = {in->a, in->b, in->c}, *next = at;
  const std::tuple<const A *...> operands{w.reg<A>(*next++)...};
  std::apply([&](const A *...a) { each<M, D>(w, in->d, [=](int i) { return f(a[i]...); }); }, operands);
}
template <bool M, class F> inline void each_of(Warp &w, const In *in, F f) { each_of<M>(w, in, f, &F::operator()); }

// Lane-by-lane instructions: compute, then jump to the next one.
template <class F> struct OfLanes {
  template <bool M> static void lanes(Warp &w, const In *in) { each_of<M>(w, in, F{}); }
};

template <class H, bool M> inline void run_lanes(Warp &w, const In *in) {
  H::template lanes<M>(w, in);
  NEXT;
}
template <class H> inline void run_rarely(Warp &w, const In *in) {
  H::template lanes<true>(w, in);
  GO_ON;
}

struct Rare { // operations that have one function
  Ops &ops;
};
template <class H> inline void put(Rare into, const std::string &name, uint32_t flags = 0) {
  into.ops[name] = {run_rarely<H>, run_rarely<H>, flags};
}
template <class H> inline void put(Ops &ops, const std::string &name, uint32_t flags = 0) {
  if constexpr (requires { H::template lanes<true>; })
    ops[name] = {run_lanes<H, false>, run_lanes<H, true>, flags};
  else
    ops[name] = {H::template run<false>, H::template run<true>, flags};
}
inline void put(Ops &ops, const std::string &name, Fn run) { ops[name] = {run, run}; }
inline void put(Ops &ops, const std::string &name, Fn plain, Fn masked) { ops[name] = {plain, masked}; }
template <class F> inline void put(auto &&into, const std::string &name, F) { put<OfLanes<F>>(into, name); }

} // namespace ptx
