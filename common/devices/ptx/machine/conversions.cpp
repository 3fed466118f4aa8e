// cvt between all types that have registers.
#include "lanes.hpp"

#include <cmath>

namespace ptx {
namespace {

struct Half {
  uint16_t word;
};
struct Brain {
  uint16_t word;
};

inline double value(Half h) {
  const int sign = h.word >> 15, exponent = h.word >> 10 & 31, fraction = h.word & 1023;
  double x = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                            : std::ldexp(fraction, -24);
  return sign ? -x : x;
}
inline float value(Brain b) { return bits<float>(uint32_t(b.word) << 16); }
inline float value(float x) { return x; }
inline double value(double x) { return x; }

// To a format of so many bits of fraction: nearest, ties to even, or towards zero.
inline Half half(double x, bool to_zero) {
  const auto sign = uint16_t(std::signbit(x) ? 0x8000 : 0);
  x = std::fabs(x);
  if (x != x) return {0x7fff};
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = (exponent < -13 ? -13 : exponent) - 11;
  const double scaled = std::ldexp(x, -step), whole = to_zero ? std::trunc(scaled) : std::nearbyint(scaled);
  const double rounded = std::ldexp(whole, step);
  if (rounded > 65504 || std::isinf(x)) return {uint16_t(sign | (to_zero && !std::isinf(x) ? 0x7bff : 0x7c00))};
  if (rounded == 0) return {sign};
  std::frexp(rounded, &exponent);
  if (exponent < -13) return {uint16_t(sign | uint16_t(std::ldexp(rounded, 24)))};
  return {uint16_t(sign | (exponent + 14) << 10 | (uint16_t(std::ldexp(rounded, 11 - exponent)) & 1023))};
}
inline Brain brain(float x, bool to_zero, bool relu) {
  uint32_t u = bits<uint32_t>(x);
  if (x != x) return {0x7fff};
  if (relu && u >> 31) return {0};
  return {uint16_t(to_zero ? u >> 16 : (u + 0x7fffu + (u >> 16 & 1)) >> 16)};
}

// imm: 1 to nearest, 2 down, 3 up, 4 to zero, as an integer from 5 on; 16 sat, 32 ftz, 64 relu.
constexpr int64_t sat = 16, ftz = 32, relu = 64;
inline double whole(double x, int64_t how) {
  switch (how & 15) {
  case 5:
    return std::nearbyint(x);
  case 6:
    return std::floor(x);
  case 7:
    return std::ceil(x);
  case 8:
    return std::trunc(x);
  default:
    return x;
  }
}

template <class D>
inline D to_integer(double x, int64_t how) { // beyond its range: the nearest; a NaN is 0 or the top bit
  x = whole(x, how);
  constexpr bool wide = sizeof(D) == 8;
  if (x != x) return wide ? D(uint64_t(1) << 63) : D(0);
  const double low = double(std::numeric_limits<D>::min());
  const double end = std::ldexp(1.0, int(8 * sizeof(D)) - (std::is_signed_v<D> ? 1 : 0));
  if (x < low) return std::numeric_limits<D>::min();
  if (x >= end) return std::numeric_limits<D>::max();
  return D(x);
}

template <class D, class S> inline D rounded(S x, int64_t how) { // float from integer or float; the mode is set
  if constexpr (std::is_floating_point_v<S>) {
    if ((how & 15) >= 5) return D(whole(double(x), how));
  }
  return D(x);
}

template <class D, class S> struct Convert {
  static D one(S a, int64_t how) {
    if constexpr (std::is_integral_v<D> && std::is_integral_v<S>) {
      if (how & sat) { // clamped to the range of D
        using L = __int128;
        const L x = a, low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
        return D(x < low ? low : x > high ? high : x);
      }
      return D(a);
    } else if constexpr (std::is_integral_v<S>) {
      if constexpr (std::is_same_v<D, Half>)
        return half(double(a), (how & 15) == 4);
      else if constexpr (std::is_same_v<D, Brain>)
        return brain(float(a), (how & 15) == 4, false);
      else
        return rounded<D>(a, how);
    } else {
      auto x = value(a);
      if constexpr (std::is_same_v<S, float>)
        if (how & ftz) x = flushed(x);
      if constexpr (std::is_integral_v<D>)
        return to_integer<D>(x, how);
      else if constexpr (std::is_same_v<D, Half>)
        return half((how & relu) && x < 0 ? 0. : double(x), (how & 15) == 4);
      else if constexpr (std::is_same_v<D, Brain>)
        return brain(float(x), (how & 15) == 4, how & relu);
      else {
        D y = rounded<D>(x, how);
        if (how & sat) y = y > 0 ? (y < 1 ? y : D(1)) : D(0);
        if constexpr (std::is_same_v<D, float>) {
          if (how & ftz) y = flushed(y);
          if (y != y) y = bits<float>(0x7fffffffu);
        }
        return y;
      }
    }
  }
  template <bool M> static void run(Warp &w, const In *in) {
    const int64_t how = in->imm;
    const S *a = w.reg<S>(in->a);
    if constexpr (std::is_integral_v<D> && std::is_integral_v<S>) {
      if (how == 0) {
        each<M, D>(w, in->d, [=](int i) { return D(a[i]); });
        NEXT;
      }
    }
    constexpr Rounding modes[] = {nearest, nearest, down, up, zero};
    if ((how & 15) < 5)
      set_mode(mode_of(modes[how & 15], false));
    else
      set_mode(mode_of(nearest, false));
    D *d = w.reg<D>(in->d);
    for (int i = 0; i < warp_size; ++i)
      if (on(w.mask, i)) d[i] = one(a[i], how);
    set_mode(mode_of(nearest, true));
    NEXT;
  }
};

struct Packed { // cvt.rn.bf16x2.f32 and f16x2: a is the upper half
  template <bool M> static void run(Warp &w, const In *in) {
    set_mode(mode_of(nearest, false));
    const float *a = w.reg<float>(in->a), *b = w.reg<float>(in->b);
    const bool brains = in->c, to_zero = (in->imm & 15) == 4, positive = in->imm & relu;
    uint32_t *d = w.reg<uint32_t>(in->d);
    for (int i = 0; i < warp_size; ++i) {
      if (!on(w.mask, i)) continue;
      const auto one = [&](float x) -> uint32_t {
        return brains ? brain(x, to_zero, positive).word : half(positive && x < 0 ? 0. : double(x), to_zero).word;
      };
      d[i] = one(a[i]) << 16 | one(b[i]);
    }
    set_mode(mode_of(nearest, true));
    NEXT;
  }
};

template <class D> void from_all(Ops &ops, const std::string &d) {
  put<Convert<D, uint8_t>>(ops, d + ".u8"), put<Convert<D, int8_t>>(ops, d + ".s8");
  put<Convert<D, uint16_t>>(ops, d + ".u16"), put<Convert<D, int16_t>>(ops, d + ".s16");
  put<Convert<D, uint32_t>>(ops, d + ".u32"), put<Convert<D, int32_t>>(ops, d + ".s32");
  put<Convert<D, uint64_t>>(ops, d + ".u64"), put<Convert<D, int64_t>>(ops, d + ".s64");
  put<Convert<D, float>>(ops, d + ".f32");
  if constexpr (!std::is_same_v<D, Brain>) put<Convert<D, double>>(ops, d + ".f64");
  if constexpr (!std::is_same_v<D, Half>) put<Convert<D, Brain>>(ops, d + ".bf16");
  if constexpr (!std::is_same_v<D, Brain>) put<Convert<D, Half>>(ops, d + ".f16");
}

} // namespace

void add_conversions(Ops &ops) {
  from_all<uint8_t>(ops, "cvt.u8"), from_all<int8_t>(ops, "cvt.s8");
  from_all<uint16_t>(ops, "cvt.u16"), from_all<int16_t>(ops, "cvt.s16");
  from_all<uint32_t>(ops, "cvt.u32"), from_all<int32_t>(ops, "cvt.s32");
  from_all<uint64_t>(ops, "cvt.u64"), from_all<int64_t>(ops, "cvt.s64");
  from_all<float>(ops, "cvt.f32"), from_all<double>(ops, "cvt.f64");
  from_all<Half>(ops, "cvt.f16"), from_all<Brain>(ops, "cvt.bf16");
  put<Packed>(ops, "cvt.x2.f32");
}

} // namespace ptx
