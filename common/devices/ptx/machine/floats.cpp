// Floating point: f32, f64, and pairs of bf16.
#include "halves.hpp"

namespace ptx {
namespace {

// F; Usual: rounded to nearest, with subnormal numbers flushed; otherwise by the flags.
constexpr uint32_t flush = 4, saturates = 8; // and a Rounding
template <bool Usual, class F> struct Arithmetic {
  template <bool M> static void lanes(Warp &w, const In *in) {
    if constexpr (!Usual) set_mode(mode_of(Rounding(in->flags & 3), in->flags & flush));
    const bool to_unit = !Usual && in->flags & saturates;
    const auto f = [=](auto... x) { return to_unit ? saturated(made(F{}(x...))) : made(F{}(x...)); };
    each_of<M>(w, in, f, &F::operator());
    if constexpr (!Usual) set_mode(mode_of(nearest, true));
  }
};

template <class T, bool Often, class F> void rounded(Ops &ops, const std::string &op, F) {
  constexpr const char *roundings[] = {"", ".rm", ".rp", ".rz"};
  const std::string type = sizeof(T) == 8 ? ".f64" : ".f32";
  const auto add = [&](const std::string &words, uint32_t flags) {
    put<Arithmetic<false, F>>(Rare{ops}, op + words + type, flags);
  };
  for (const uint32_t r : {nearest, down, up, zero}) {
    add(roundings[r], r);
    if constexpr (sizeof(T) == 4) add(std::string(roundings[r]) + ".ftz", r | flush);
  }
  if constexpr (sizeof(T) == 4) {
    add(".sat", saturates), add(".ftz.sat", flush | saturates);
    if constexpr (Often) put<Arithmetic<true, F>>(ops, op + ".ftz.f32");
  }
}

// Minimum or maximum: the operand that is no NaN, or with `Keeps` the NaN; -0 is below +0.
template <bool Most, bool Keeps = false, class T> inline T extreme(T a, T b) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const T either = bits<T>(Most ? bits<U>(a) & bits<U>(b) : bits<U>(a) | bits<U>(b)); // for equal numbers
  const T chosen = a == b ? either : (Most ? a > b : a < b) ? a : b;
  return Keeps && (a != a || b != b) ? a + b : a != a ? b : b != b ? a : chosen;
}
template <bool Most, bool Keeps> void extremes(Ops &ops, const std::string &op, const std::string &nan) {
  const auto usual = [](float a, float b) { return flushed(extreme<Most, Keeps>(a, b)); };
  const auto exact = [](float a, float b) { return extreme<Most, Keeps>(a, b); };
  const auto wide = [](double a, double b) { return extreme<Most, Keeps>(a, b); };
  put<Arithmetic<true, decltype(usual)>>(ops, op + ".ftz" + nan + ".f32");
  put<Arithmetic<false, decltype(exact)>>(Rare{ops}, op + nan + ".f32");
  if constexpr (!Keeps) put<Arithmetic<false, decltype(wide)>>(Rare{ops}, op + ".f64");
}

template <class F> struct Approximated { // lane by lane: F calls the C library
  template <bool M> static void lanes(Warp &w, const In *in) {
    const Mode mode(false);
    const float *a = w.reg<float>(in->a);
    const bool flushes = in->flags & flush;
    for (const int i : Each{w.mask}) {
      const float x = made(F{}(flushes ? flushed(a[i]) : a[i]));
      w.reg<float>(in->d)[i] = flushes ? flushed(x) : x;
    }
  }
};
template <class F> void approximated(Ops &ops, const std::string &name, F) {
  put<Approximated<F>>(Rare{ops}, name + ".f32"), put<Approximated<F>>(Rare{ops}, name + ".ftz.f32", flush);
}

// Reciprocal of the upper word of `x`, or of its root, cut to its upper word; lower words are 0. Subnormal numbers are
// zeros.
template <bool Root> double gross_reciprocal(double x) {
  const auto upper = [](double y) {
    constexpr uint64_t sign = uint64_t(1) << 63, exponent = uint64_t(0x7ff) << 52;
    const uint64_t u = bits<uint64_t>(y) & ~uint64_t(0xffffffff);
    return y != y ? y : bits<double>(u & exponent ? u : u & sign);
  };
  return upper(1 / (Root ? std::sqrt(upper(x)) : upper(x)));
}

// Operation of 16-bit floats, one or two in a register. flags: of Arithmetic, and these.
constexpr uint32_t keeps_nan = 1, no_negatives = 16;
template <class H, class U, class F> struct Halves {
  template <bool M> static void lanes(Warp &w, const In *in) {
    const Mode mode(false);
    const uint32_t flags = in->flags;
    const auto normal = [=](double x) { return flags & flush && std::fabs(x) < H::least ? std::copysign(0., x) : x; };
    const auto f = [=](double x, double y, double z) {
      const double d = normal(flags & keeps_nan && (x != x || y != y) ? x + y : F{}(normal(x), normal(y), normal(z)));
      return flags & saturates ? saturated(d) : flags & no_negatives && d < 0 ? 0. : d;
    };
    each_of<M>(w, in, [=](U a, U b, U c) { return by_halves<H>(f, a, b, c); }); // some may be absent
  }
};
template <class H, class U> void halves(Ops &ops, const std::string &t) {
  using Words = std::initializer_list<std::pair<const char *, uint32_t>>;
  const auto add = [&]<class F>(const std::string &op, F, Words words) {
    for (const auto &[word, flags] : words) {
      put<Halves<H, U, F>>(Rare{ops}, op + word + "." + t, flags);
      if (t[0] == 'f') put<Halves<H, U, F>>(Rare{ops}, op + ".ftz" + word + "." + t, flags | flush);
    }
  };
  const Words sums = {{"", 0}, {".sat", saturates}}, extremes = {{"", 0}, {".NaN", keeps_nan}};
  add("add", [](double a, double b, double) { return a + b; }, sums);
  add("sub", [](double a, double b, double) { return a - b; }, sums);
  add("mul", [](double a, double b, double) { return a * b; }, sums);
  add("fma", [](double a, double b, double c) { return fused_to_odd(a, b, c); },
      {{"", 0}, {".sat", saturates}, {".relu", no_negatives}});
  add("max", [](double a, double b, double) { return extreme<true>(a, b); }, extremes);
  add("min", [](double a, double b, double) { return extreme<false>(a, b); }, extremes);
  add("tanh.approx", [](double a, double, double) { return std::tanh(a); }, {{"", 0}});
  add("ex2.approx", [](double a, double, double) { return std::exp2(a); }, {{"", 0}, {".ftz", flush}});
}

template <auto Sign, bool Copies = true> void signs(auto &&into, const std::string &t) {
  using U = std::remove_const_t<decltype(Sign)>;
  put(into, "neg." + t, [](U a) { return U(a ^ Sign); });
  put(into, "abs." + t, [](U a) { return U(a & ~Sign); });
  if constexpr (Copies) put(into, "copysign." + t, [](U a, U b) { return U((b & ~Sign) | (a & Sign)); });
}

} // namespace

void add_floats(Ops &ops) {
  const auto arithmetic = [&]<class T>(T) {
    rounded<T, true>(ops, "add", [](T a, T b) { return a + b; });
    rounded<T, true>(ops, "sub", [](T a, T b) { return a - b; });
    rounded<T, true>(ops, "mul", [](T a, T b) { return a * b; });
    rounded<T, true>(ops, "fma", [](T a, T b, T c) { return std::fma(a, b, c); });
    rounded<T, false>(ops, "div", [](T a, T b) { return a / b; });
    rounded<T, false>(ops, "rcp", [](T a) { return T(1) / a; });
    rounded<T, false>(ops, "sqrt", [](T a) { return std::sqrt(a); });
  };
  arithmetic(float{}), arithmetic(double{});
  extremes<true, false>(ops, "max", ""), extremes<true, true>(ops, "max", ".NaN");
  extremes<false, false>(ops, "min", ""), extremes<false, true>(ops, "min", ".NaN");
  signs<0x80000000u>(ops, "f32"), signs<uint64_t(1) << 63>(Rare{ops}, "f64");
  put(ops, "neg.ftz.f32", [](float a) { return flushed(bits<float>(bits<uint32_t>(a) ^ 0x80000000u)); });
  put(ops, "abs.ftz.f32", [](float a) { return flushed(bits<float>(bits<uint32_t>(a) & 0x7fffffffu)); });
  approximated(ops, "ex2.approx", [](float x) { return std::exp2(x); });
  approximated(ops, "lg2.approx", [](float x) { return std::log2(x); });
  approximated(ops, "sin.approx", [](float x) { return std::sin(x); });
  approximated(ops, "cos.approx", [](float x) { return std::cos(x); });
  approximated(ops, "tanh.approx", [](float x) { return std::tanh(x); });
  put(Rare{ops}, "rcp.approx.ftz.f64", [](double x) { return gross_reciprocal<false>(x); });
  put(Rare{ops}, "rsqrt.approx.ftz.f64", [](double x) { return gross_reciprocal<true>(x); });
  put<Arithmetic<false, decltype([](double x) { return 1 / std::sqrt(x); })>>(Rare{ops}, "rsqrt.approx.f64");
  approximated(ops, "rsqrt.approx", [](float x) { return float(1 / std::sqrt(double(x))); });
  halves<Half, uint16_t>(ops, "f16"), halves<Half, uint32_t>(ops, "f16x2");
  halves<Brain, uint16_t>(ops, "bf16"), halves<Brain, uint32_t>(ops, "bf16x2");
  for (const std::string t : {"f16", "bf16"})
    signs<uint16_t(0x8000), false>(Rare{ops}, t), signs<0x80008000u, false>(Rare{ops}, t + "x2");
}

} // namespace ptx
