// Floating point: f32, f64, and pairs of bf16.
#include "halves.hpp"

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
  const T either = bits<T>(Most ? bits<U>(a) & bits<U>(b) : bits<U>(a) | bits<U>(b)); // for equal numbers
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

// The upper words of a reciprocal, of the upper words of `x`; the lower ones are 0. Subnormal numbers are zeros.
inline double gross_reciprocal(double x) {
  const auto upper = [](double y) {
    constexpr uint64_t sign = uint64_t(1) << 63, exponent = uint64_t(0x7ff) << 52;
    const uint64_t u = bits<uint64_t>(y) & ~uint64_t(0xffffffff);
    return y != y ? y : bits<double>(u & exponent ? u : u & sign);
  };
  return upper(1 / upper(x));
}

// Operation of 16-bit floats, one or two in a register. flags: of Arithmetic and Extreme, and `no_negatives`.
constexpr uint32_t no_negatives = 16;
template <class H, class U, int N, class F> struct Halves {
  template <bool M> static void lanes(Warp &w, const In *in) {
    const Mode<false> mode;
    const uint32_t flags = in->flags;
    const U *a = w.reg<U>(in->a), *b = w.reg<U>(N > 1 ? in->b : in->a), *c = w.reg<U>(N > 2 ? in->c : in->a);
    const auto normal = [=](double x) { return flags & flush && std::fabs(x) < 0x1p-14 ? std::copysign(0., x) : x; };
    const auto f = [=](double x, double y, double z) {
      const double d = normal(flags & keeps_nan && (x != x || y != y) ? x + y : F{}(normal(x), normal(y), normal(z)));
      return flags & saturates ? saturated(d) : flags & no_negatives && d < 0 ? 0. : d;
    };
    each<M, U>(w, in->d, [=](int i) { return by_halves<H>(f, a[i], b[i], c[i]); });
  }
};
template <class U, bool Abs> struct Signs { // flags: bits of the signs
  template <bool M> static void lanes(Warp &w, const In *in) {
    const U *a = w.reg<U>(in->a);
    const U signs = U(in->flags);
    each<M, U>(w, in->d, [=](int i) { return U(Abs ? a[i] & ~signs : a[i] ^ signs); });
  }
};
template <class H, class U> void halves(Ops &ops, const std::string &t, uint32_t signs) {
  const Rare rare{ops};
  using Words = std::initializer_list<std::pair<const char *, uint32_t>>;
  const auto add = [&]<class N, class F>(N, const std::string &op, F, Words words) {
    for (const auto &[word, flags] : words) {
      put<Halves<H, U, N::value, F>>(rare, op + word + "." + t, flags);
      if (t[0] == 'f') put<Halves<H, U, N::value, F>>(rare, op + ".ftz" + word + "." + t, flags | flush);
    }
  };
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  const Words sums = {{"", 0}, {".sat", saturates}}, extremes = {{"", 0}, {".NaN", keeps_nan}};
  add(two, "add", [](double a, double b, double) { return a + b; }, sums);
  add(two, "sub", [](double a, double b, double) { return a - b; }, sums);
  add(two, "mul", [](double a, double b, double) { return a * b; }, sums);
  add(std::integral_constant<int, 3>(), "fma", [](double a, double b, double c) { return fused_to_odd(a, b, c); },
      {{"", 0}, {".sat", saturates}, {".relu", no_negatives}});
  add(two, "max", [](double a, double b, double) { return extreme<double, true>(a, b); }, extremes);
  add(two, "min", [](double a, double b, double) { return extreme<double, false>(a, b); }, extremes);
  add(one, "tanh.approx", [](double a, double, double) { return std::tanh(a); }, {{"", 0}});
  add(one, "ex2.approx", [](double a, double, double) { return std::exp2(a); }, {{"", 0}, {".ftz", 0}});
  put<Signs<U, false>>(rare, "neg." + t, signs), put<Signs<U, true>>(rare, "abs." + t, signs);
}

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
  halves<Half, uint16_t>(ops, "f16", 0x8000), halves<Half, uint32_t>(ops, "f16x2", 0x80008000);
  halves<Brain, uint16_t>(ops, "bf16", 0x8000), halves<Brain, uint32_t>(ops, "bf16x2", 0x80008000);
}

} // namespace ptx
