// Floating point: f32, f64, and pairs of bf16.
#include "lanes.hpp"

#include <cmath>

namespace ptx {
namespace {

template <class T> inline T saturated(T x) { return x > 0 ? (x < 1 ? x : T(1)) : T(0); } // a NaN is 0

// F of N operands: `Usual` f32 is to nearest and without subnormal numbers; otherwise by the flags.
constexpr uint32_t flush = 4, saturates = 8; // and a Rounding
template <class T, bool Usual, int N, class F> struct Arithmetic {
  template <bool M> static void lanes(Warp &w, const In *in) {
    if constexpr (!Usual) set_mode(mode_of(Rounding(in->flags & 3), in->flags & flush));
    const bool to_unit = !Usual && in->flags & saturates;
    const T *a = w.reg<T>(in->a), *b = w.reg<T>(in->b), *c = w.reg<T>(in->c);
    each<M, T>(w, in->d, [=](int i) {
      T x;
      if constexpr (N == 1)
        x = F{}(a[i]);
      else if constexpr (N == 2)
        x = F{}(a[i], b[i]);
      else
        x = F{}(a[i], b[i], c[i]);
      x = made(x);
      return to_unit ? saturated(x) : x;
    });
    if constexpr (!Usual) set_mode(mode_of(nearest, true));
  }
};

template <class T, int N, bool Often, class F> void rounded(Ops &ops, const std::string &op, F) {
  constexpr const char *roundings[] = {"", ".rm", ".rp", ".rz"};
  const std::string type = sizeof(T) == 8 ? ".f64" : ".f32";
  const auto add = [&](const std::string &words, uint32_t flags) {
    put<Arithmetic<T, false, N, F>>(Rare{ops}, op + words + type, flags);
  };
  for (const uint32_t r : {nearest, down, up, zero}) {
    add(roundings[r], r);
    if constexpr (sizeof(T) == 4) add(std::string(roundings[r]) + ".ftz", r | flush);
  }
  if constexpr (sizeof(T) == 4) {
    add(".sat", saturates), add(".ftz.sat", flush | saturates);
    if constexpr (Often) put<Arithmetic<T, true, N, F>>(ops, op + ".ftz.f32");
  }
}

// Minimum and maximum: the operand that is no NaN; -0 is below +0.
template <class T, bool Most> inline T extreme(T a, T b) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const T either = bits<T>(Most ? bits<U>(a) & bits<U>(b) : bits<U>(a) | bits<U>(b)); // of equal numbers
  const T chosen = a == b ? either : (Most ? a > b : a < b) ? a : b;
  return a != a ? b : b != b ? a : chosen;
}

constexpr uint32_t keeps_nan = 1; // and flush
template <class T, bool Usual, bool Most> struct Extreme {
  template <bool M> static void lanes(Warp &w, const In *in) {
    const bool flushes = Usual || in->flags & flush, keeps = !Usual && in->flags & keeps_nan;
    if constexpr (!Usual) set_mode(mode_of(nearest, flushes));
    const T *a = w.reg<T>(in->a), *b = w.reg<T>(in->b);
    each<M, T>(w, in->d, [=](int i) {
      T x = extreme<T, Most>(a[i], b[i]);
      if (keeps) x = a[i] != a[i] || b[i] != b[i] ? a[i] + b[i] : x;
      if constexpr (sizeof(T) == 4) x = flushes ? flushed(x) : x;
      return made(x);
    });
    if constexpr (!Usual) set_mode(mode_of(nearest, true));
  }
};
template <bool Most> void extremes(Ops &ops, const std::string &op) {
  const Rare rare{ops};
  put<Extreme<float, true, Most>>(ops, op + ".ftz.f32"), put<Extreme<float, false, Most>>(rare, op + ".f32");
  put<Extreme<float, false, Most>>(rare, op + ".ftz.NaN.f32", flush | keeps_nan);
  put<Extreme<float, false, Most>>(rare, op + ".NaN.f32", keeps_nan);
  put<Extreme<double, false, Most>>(rare, op + ".f64");
}

template <class F> struct Approximated { // one by one: functions of the library
  template <bool M> static void lanes(Warp &w, const In *in) {
    {
      Mode<false> mode;
      const float *a = w.reg<float>(in->a);
      const bool flushes = in->imm != 0;
      const uint32_t mask = w.mask;
      each<M, float>(w, in->d, [=](int i) {
        if (!on(mask, i)) return 0.f;
        const float x = made(F{}(flushes ? flushed(a[i]) : a[i]));
        return flushes ? flushed(x) : x;
      });
    }
  }
};
template <class F> void approximated(Ops &ops, const std::string &name, F) { put<Approximated<F>>(Rare{ops}, name); }

// Two bf16 in a word, each computed in f32 and rounded once: sums and products of bf16 are exact enough for that.
inline float low_bf16(uint32_t pair) { return bits<float>(pair << 16); }
inline float high_bf16(uint32_t pair) { return bits<float>(pair & 0xffff0000u); }
inline uint32_t to_bf16(double value) { // rounded from the exact value: to odd, then to the nearest
  float x = float(value);
  uint32_t u = bits<uint32_t>(x);
  if (x != x) return 0x7fff;
  if (double(x) != value && std::isfinite(x)) {
    if (std::fabs(double(x)) > std::fabs(value)) --u;
    u |= 1;
  }
  return (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}
// The upper words of a reciprocal, of the upper words of `x`; the lower ones are 0. Subnormal numbers are zeros.
inline double gross_reciprocal(double x) {
  const auto upper = [](double y) {
    constexpr uint64_t sign = uint64_t(1) << 63, exponent = uint64_t(0x7ff) << 52;
    const uint64_t u = bits<uint64_t>(y) & ~uint64_t(0xffffffff);
    return y != y ? y : bits<double>(u & exponent ? u : u & sign);
  };
  return upper(1 / upper(x));
}

template <int N, class F> struct Pairs {
  template <bool M> static void lanes(Warp &w, const In *in) {
    {
      Mode<false> mode;
      const uint32_t *a = w.reg<uint32_t>(in->a), *b = w.reg<uint32_t>(in->b), *c = w.reg<uint32_t>(in->c);
      each<M, uint32_t>(w, in->d, [=](int i) {
        const auto half = [&](float (*of)(uint32_t)) {
          return to_bf16(F{}(double(of(a[i])), double(of(b[i])), N == 3 ? double(of(c[i])) : 0.));
        };
        return half(low_bf16) | half(high_bf16) << 16;
      });
    }
  }
};

template <class T, class U> void signs(auto &&into, const std::string &t) {
  constexpr U sign = U(1) << (8 * sizeof(U) - 1);
  unary<U, U>(into, "neg." + t, [](U a) { return U(a ^ sign); });
  unary<U, U>(into, "abs." + t, [](U a) { return U(a & ~sign); });
  binary<U, U, U>(into, "copysign." + t, [](U a, U b) { return U((b & ~sign) | (a & sign)); });
}

} // namespace

void add_floats(Ops &ops) {
  const auto arithmetic = [&]<class T>(T) {
    rounded<T, 2, true>(ops, "add", [](T a, T b) { return a + b; });
    rounded<T, 2, true>(ops, "sub", [](T a, T b) { return a - b; });
    rounded<T, 2, true>(ops, "mul", [](T a, T b) { return a * b; });
    rounded<T, 3, true>(ops, "fma", [](T a, T b, T c) { return std::fma(a, b, c); });
    rounded<T, 2, false>(ops, "div", [](T a, T b) { return a / b; });
    rounded<T, 1, false>(ops, "rcp", [](T a) { return T(1) / a; });
    rounded<T, 1, false>(ops, "sqrt", [](T a) { return std::sqrt(a); });
  };
  arithmetic(float{}), arithmetic(double{});
  extremes<true>(ops, "max"), extremes<false>(ops, "min");
  signs<float, uint32_t>(ops, "f32"), signs<double, uint64_t>(Rare{ops}, "f64");
  unary<float, float>(ops, "neg.ftz.f32",
                      [](float a) { return flushed(bits<float>(bits<uint32_t>(a) ^ 0x80000000u)); });
  unary<float, float>(ops, "abs.ftz.f32",
                      [](float a) { return flushed(bits<float>(bits<uint32_t>(a) & 0x7fffffffu)); });
  approximated(ops, "ex2.approx", [](float x) { return std::exp2(x); });
  approximated(ops, "lg2.approx", [](float x) { return std::log2(x); });
  approximated(ops, "sin.approx", [](float x) { return std::sin(x); });
  approximated(ops, "cos.approx", [](float x) { return std::cos(x); });
  approximated(ops, "tanh.approx", [](float x) { return std::tanh(x); });
  unary<double, double>(Rare{ops}, "rcp.approx.ftz.f64", [](double x) { return made(gross_reciprocal(x)); });
  approximated(ops, "rsqrt.approx", [](float x) { return float(1 / std::sqrt(double(x))); });
  const auto pairs = [&]<class F>(const char *name, F) { put<Pairs<3, F>>(Rare{ops}, name); };
  pairs("fma.bf16x2", [](double a, double b, double c) { return std::fma(a, b, c); });
  const auto both = [&]<class F>(const char *name, F) { put<Pairs<2, F>>(Rare{ops}, name); };
  both("add.bf16x2", [](double a, double b, double) { return a + b; });
  both("sub.bf16x2", [](double a, double b, double) { return a - b; });
  both("mul.bf16x2", [](double a, double b, double) { return a * b; });
  both("max.bf16x2", [](double a, double b, double) { return extreme<double, true>(a, b); });
  both("min.bf16x2", [](double a, double b, double) { return extreme<double, false>(a, b); });
}

} // namespace ptx
