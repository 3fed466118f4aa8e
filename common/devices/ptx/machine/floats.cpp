// Floating point: f32, f64, and pairs of bf16.
#include "lanes.hpp"

#include <cmath>

namespace ptx {
namespace {

template <class T> inline T saturated(T x) { return x > 0 ? (x < 1 ? x : T(1)) : T(0); } // a NaN is 0

template <class T, bool Flush, Rounding R, bool Sat, int N, class F> struct Arithmetic {
  template <bool M> static void run(Warp &w, const In *in) {
    {
      Mode<Flush, R> mode;
      const T *a = w.reg<T>(in->a);
      const T *b = w.reg<T>(in->b);
      const T *c = w.reg<T>(in->c);
      each<M, T>(w, in->d, [=](int i) {
        T x;
        if constexpr (N == 1)
          x = F{}(a[i]);
        else if constexpr (N == 2)
          x = F{}(a[i], b[i]);
        else
          x = F{}(a[i], b[i], c[i]);
        x = made(x);
        return Sat ? saturated(x) : x;
      });
    }
    NEXT;
  }
};

// Of the usual mode, and of the others that PTX has.
template <class T, int N, class F> void rounded(Ops &ops, const std::string &op, F) {
  if constexpr (sizeof(T) == 8) {
    put<Arithmetic<T, false, nearest, false, N, F>>(ops, op + ".f64");
    put<Arithmetic<T, false, down, false, N, F>>(ops, op + ".rm.f64");
    put<Arithmetic<T, false, up, false, N, F>>(ops, op + ".rp.f64");
    put<Arithmetic<T, false, zero, false, N, F>>(ops, op + ".rz.f64");
  } else {
    put<Arithmetic<T, true, nearest, false, N, F>>(ops, op + ".ftz.f32");
    put<Arithmetic<T, true, nearest, true, N, F>>(ops, op + ".ftz.sat.f32");
    put<Arithmetic<T, true, down, false, N, F>>(ops, op + ".rm.ftz.f32");
    put<Arithmetic<T, true, up, false, N, F>>(ops, op + ".rp.ftz.f32");
    put<Arithmetic<T, true, zero, false, N, F>>(ops, op + ".rz.ftz.f32");
    put<Arithmetic<T, false, nearest, false, N, F>>(ops, op + ".f32");
    put<Arithmetic<T, false, nearest, true, N, F>>(ops, op + ".sat.f32");
    put<Arithmetic<T, false, down, false, N, F>>(ops, op + ".rm.f32");
    put<Arithmetic<T, false, up, false, N, F>>(ops, op + ".rp.f32");
    put<Arithmetic<T, false, zero, false, N, F>>(ops, op + ".rz.f32");
  }
}

// Minimum and maximum: the operand that is no NaN; -0 is below +0.
template <class T, bool Most> inline T extreme(T a, T b) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const T either = bits<T>(Most ? bits<U>(a) & bits<U>(b) : bits<U>(a) | bits<U>(b)); // of equal numbers
  const T chosen = a == b ? either : (Most ? a > b : a < b) ? a : b;
  return a != a ? b : b != b ? a : chosen;
}

template <class T, bool Flush, bool Most, bool Nan> struct Extreme {
  template <bool M> static void run(Warp &w, const In *in) {
    {
      Mode<Flush> mode;
      const T *a = w.reg<T>(in->a), *b = w.reg<T>(in->b);
      each<M, T>(w, in->d, [=](int i) {
        T x = extreme<T, Most>(a[i], b[i]);
        if constexpr (Nan) x = a[i] != a[i] || b[i] != b[i] ? a[i] + b[i] : x;
        if constexpr (Flush) x = flushed(x);
        return made(x);
      });
    }
    NEXT;
  }
};

template <class F> struct Approximated { // one by one: functions of the library
  template <bool M> static void run(Warp &w, const In *in) {
    {
      Mode<false> mode;
      const float *a = w.reg<float>(in->a);
      const bool flush = in->imm != 0;
      const uint32_t mask = w.mask;
      each<M, float>(w, in->d, [=](int i) {
        if (!on(mask, i)) return 0.f;
        const float x = made(F{}(flush ? flushed(a[i]) : a[i]));
        return flush ? flushed(x) : x;
      });
    }
    NEXT;
  }
};
template <class F> void approximated(Ops &ops, const std::string &name, F) { put<Approximated<F>>(ops, name); }

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
template <int N, class F> struct Pairs {
  template <bool M> static void run(Warp &w, const In *in) {
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
    NEXT;
  }
};

template <class T, class U> void signs(Ops &ops, const std::string &t) {
  constexpr U sign = U(1) << (8 * sizeof(U) - 1);
  unary<U, U>(ops, "neg." + t, [](U a) { return U(a ^ sign); });
  unary<U, U>(ops, "abs." + t, [](U a) { return U(a & ~sign); });
  binary<U, U, U>(ops, "copysign." + t, [](U a, U b) { return U((b & ~sign) | (a & sign)); });
}

} // namespace

void add_floats(Ops &ops) {
  const auto arithmetic = [&]<class T>(T) {
    rounded<T, 2>(ops, "add", [](T a, T b) { return a + b; });
    rounded<T, 2>(ops, "sub", [](T a, T b) { return a - b; });
    rounded<T, 2>(ops, "mul", [](T a, T b) { return a * b; });
    rounded<T, 3>(ops, "fma", [](T a, T b, T c) { return std::fma(a, b, c); });
    rounded<T, 2>(ops, "div", [](T a, T b) { return a / b; });
    rounded<T, 1>(ops, "rcp", [](T a) { return T(1) / a; });
    rounded<T, 1>(ops, "sqrt", [](T a) { return std::sqrt(a); });
  };
  arithmetic(float{}), arithmetic(double{});
  put<Extreme<float, true, true, false>>(ops, "max.ftz.f32"),
      put<Extreme<float, true, false, false>>(ops, "min.ftz.f32");
  put<Extreme<float, false, true, false>>(ops, "max.f32"), put<Extreme<float, false, false, false>>(ops, "min.f32");
  put<Extreme<float, true, true, true>>(ops, "max.ftz.NaN.f32"),
      put<Extreme<float, true, false, true>>(ops, "min.ftz.NaN.f32");
  put<Extreme<float, false, true, true>>(ops, "max.NaN.f32"),
      put<Extreme<float, false, false, true>>(ops, "min.NaN.f32");
  put<Extreme<double, false, true, false>>(ops, "max.f64"), put<Extreme<double, false, false, false>>(ops, "min.f64");
  signs<float, uint32_t>(ops, "f32"), signs<double, uint64_t>(ops, "f64");
  unary<float, float>(ops, "neg.ftz.f32",
                      [](float a) { return flushed(bits<float>(bits<uint32_t>(a) ^ 0x80000000u)); });
  unary<float, float>(ops, "abs.ftz.f32",
                      [](float a) { return flushed(bits<float>(bits<uint32_t>(a) & 0x7fffffffu)); });
  approximated(ops, "ex2.approx", [](float x) { return std::exp2(x); });
  approximated(ops, "lg2.approx", [](float x) { return std::log2(x); });
  approximated(ops, "sin.approx", [](float x) { return std::sin(x); });
  approximated(ops, "cos.approx", [](float x) { return std::cos(x); });
  approximated(ops, "tanh.approx", [](float x) { return std::tanh(x); });
  approximated(ops, "rsqrt.approx", [](float x) { return float(1 / std::sqrt(double(x))); });
  const auto pairs = [&]<class F>(const char *name, F) { put<Pairs<3, F>>(ops, name); };
  pairs("fma.bf16x2", [](double a, double b, double c) { return std::fma(a, b, c); });
  const auto both = [&]<class F>(const char *name, F) { put<Pairs<2, F>>(ops, name); };
  both("add.bf16x2", [](double a, double b, double) { return a + b; });
  both("sub.bf16x2", [](double a, double b, double) { return a - b; });
  both("mul.bf16x2", [](double a, double b, double) { return a * b; });
  both("max.bf16x2", [](double a, double b, double) { return extreme<double, true>(a, b); });
  both("min.bf16x2", [](double a, double b, double) { return extreme<double, false>(a, b); });
}

} // namespace ptx
