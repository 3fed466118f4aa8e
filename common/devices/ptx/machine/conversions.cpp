// cvt between all register types.
#include "halves.hpp"

namespace ptx {

double from_half(uint16_t word) {
  const int sign = word >> 15, exponent = word >> 10 & 31, fraction = word & 1023;
  double x = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                            : std::ldexp(fraction, -24);
  return sign ? -x : x;
}

uint16_t to_half(double x, bool to_zero) {
  const auto sign = uint16_t(std::signbit(x) ? 0x8000 : 0);
  x = std::fabs(x);
  if (x != x) return 0x7fff;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = (exponent < -13 ? -13 : exponent) - 11;
  const double scaled = std::ldexp(x, -step), whole = to_zero ? std::trunc(scaled) : std::nearbyint(scaled);
  const double rounded = std::ldexp(whole, step);
  if (rounded > 65504 || std::isinf(x)) return uint16_t(sign | (to_zero && !std::isinf(x) ? 0x7bff : 0x7c00));
  if (rounded == 0) return sign;
  std::frexp(rounded, &exponent);
  if (exponent < -13) return uint16_t(sign | uint16_t(std::ldexp(rounded, 24)));
  return uint16_t(sign | (exponent + 14) << 10 | (uint16_t(std::ldexp(rounded, 11 - exponent)) & 1023));
}

namespace {

uint16_t to_brain(float x, bool to_zero, bool relu) {
  const uint32_t u = bits<uint32_t>(x);
  if (x != x) return 0x7fff;
  if (relu && u >> 31) return 0;
  return uint16_t(to_zero ? u >> 16 : (u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// imm: 1 to nearest, 2 down, 3 up, 4 to zero, as an integer from 5 on; 16 sat, 32 ftz, 64 relu.
constexpr int64_t sat = 16, ftz = 32, relu = 64;
double whole(double x, int64_t how) {
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

enum Type : uint32_t { u8, s8, u16, s16, u32, s32, u64, s64, f32, f64, f16, bf16 }; // integers are even and signed odd
constexpr const char *types[] = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16"};
constexpr uint32_t type_count = 12;
using Integer = __int128; // holds every integer type

int bits_of(Type t) { return 8 << (t / 2); } // for integer types
Integer lowest(Type t) { return t % 2 ? -(Integer(1) << (bits_of(t) - 1)) : 0; }
Integer highest(Type t) { return (Integer(1) << (bits_of(t) - t % 2)) - 1; }

template <class T> T element(const Warp &w, uint32_t at, int lane) { return w.reg<T>(at)[lane]; }
Integer integer_in(const Warp &w, uint32_t at, int lane, Type t) {
  switch (t) {
  case u8:
    return element<uint8_t>(w, at, lane);
  case s8:
    return element<int8_t>(w, at, lane);
  case u16:
    return element<uint16_t>(w, at, lane);
  case s16:
    return element<int16_t>(w, at, lane);
  case u32:
    return element<uint32_t>(w, at, lane);
  case s32:
    return element<int32_t>(w, at, lane);
  case u64:
    return element<uint64_t>(w, at, lane);
  default:
    return element<int64_t>(w, at, lane);
  }
}
double number_in(const Warp &w, uint32_t at, int lane, Type t) { // for floating types: exact
  if (t == f64) return element<double>(w, at, lane);
  if (t == f16) return from_half(element<uint16_t>(w, at, lane));
  if (t == bf16) return bits<float>(uint32_t(element<uint16_t>(w, at, lane)) << 16);
  return element<float>(w, at, lane);
}

Integer clamped(Integer x, Type t) { return x < lowest(t) ? lowest(t) : x > highest(t) ? highest(t) : x; }
Integer to_integer(double x, Type t, int64_t how) { // beyond its range: the nearest; a NaN is 0 or the top bit
  x = whole(x, how);
  if (x != x) return bits_of(t) == 64 ? Integer(1) << 63 : 0;
  return clamped(std::fabs(x) < 0x1p100 ? Integer(x) : Integer(x < 0 ? -0x1p100 : 0x1p100), t);
}
template <class F> F nearest_to(Integer x) { return x < 0 ? F(int64_t(x)) : F(uint64_t(x)); } // in the mode that is set

uint64_t to_float(double x, Type t, int64_t how) {
  const bool to_zero = (how & 15) == 4;
  if (t == f16) return to_half((how & relu) && x < 0 ? 0. : x, to_zero);
  if (t == bf16) return to_brain(float(x), to_zero, how & relu);
  if ((how & 15) >= 5) x = whole(x, how);
  if (t == f64) return bits<uint64_t>(how & sat ? (x > 0 ? (x < 1 ? x : 1) : 0) : x);
  float y = float(x);
  if (how & sat) y = y > 0 ? (y < 1 ? y : 1) : 0;
  return bits<uint32_t>(made(how & ftz ? flushed(y) : y));
}

// Any conversion, lane by lane. flags: type of the result + 16 * type of the operand.
void convert(Warp &w, const In *in) {
  const auto to = Type(in->flags & 15), from = Type(in->flags >> 4);
  const int64_t how = in->imm;
  constexpr Rounding modes[] = {nearest, nearest, down, up, zero};
  set_mode(mode_of((how & 15) < 5 ? modes[how & 15] : nearest, false));
  for (uint32_t left = w.mask; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    uint64_t word = 0;
    if (from < f32) {
      const Integer x = integer_in(w, in->a, lane, from);
      word = to < f32    ? uint64_t(how & sat ? clamped(x, to) : x)
             : to == f32 ? bits<uint32_t>(nearest_to<float>(x))
             : to == f64 ? bits<uint64_t>(nearest_to<double>(x))
             : to == f16 ? to_half(nearest_to<double>(x), (how & 15) == 4)
                         : to_brain(nearest_to<float>(x), (how & 15) == 4, false);
    } else {
      double x = number_in(w, in->a, lane, from);
      if (from == f32 && how & ftz) x = flushed(float(x));
      word = to < f32 ? uint64_t(to_integer(x, to, how)) : to_float(x, to, how);
    }
    const uint32_t bytes = to == f32 ? 4 : to == f64 ? 8 : to > f64 ? 2 : uint32_t(bits_of(to)) / 8;
    std::memcpy(w.reg<uint8_t>(in->d) + bytes * uint32_t(lane), &word, bytes); // the low part first
  }
  set_mode(mode_of(nearest, true));
  GO_ON;
}

template <class D, class S> struct Resize { // integers; the sign of D does not matter
  template <bool M> static void run(Warp &w, const In *in) {
    if (in->imm) return convert(w, in);
    const S *a = w.reg<S>(in->a);
    each<M, D>(w, in->d, [=](int i) { return D(a[i]); });
    NEXT;
  }
};

struct Packed { // cvt.rn.bf16x2.f32 and f16x2: a is the upper half
  static void run(Warp &w, const In *in) {
    set_mode(mode_of(nearest, false));
    const float *a = w.reg<float>(in->a), *b = w.reg<float>(in->b);
    const bool brains = in->c, to_zero = (in->imm & 15) == 4, positive = in->imm & relu;
    uint32_t *d = w.reg<uint32_t>(in->d);
    for (int i = 0; i < warp_size; ++i) {
      if (!on(w.mask, i)) continue;
      const auto one = [&](float x) -> uint32_t {
        return brains ? to_brain(x, to_zero, positive) : to_half(positive && x < 0 ? 0. : double(x), to_zero);
      };
      d[i] = one(a[i]) << 16 | one(b[i]);
    }
    set_mode(mode_of(nearest, true));
    GO_ON;
  }
};

std::string name(uint32_t to, uint32_t from) { return std::string("cvt.") + types[to] + "." + types[from]; }

template <class D> void resizes(Ops &ops, uint32_t to) {
  const auto add = [&]<class S>(S, uint32_t from) { put<Resize<D, S>>(ops, name(to, from), to | from << 4); };
  add(uint8_t{}, u8), add(uint16_t{}, u16), add(uint32_t{}, u32), add(uint64_t{}, u64);
  add(std::conditional_t<sizeof(D) == 1, uint8_t, int8_t>{}, s8);
  add(std::conditional_t<sizeof(D) <= 2, uint16_t, int16_t>{}, s16);
  add(std::conditional_t<sizeof(D) <= 4, uint32_t, int32_t>{}, s32), add(uint64_t{}, s64);
}

} // namespace

void add_conversions(Ops &ops) {
  for (uint32_t to = 0; to < type_count; ++to)
    for (uint32_t from = 0; from < type_count; ++from) ops[name(to, from)] = {convert, convert, to | from << 4};
  for (const uint32_t sign : {0, 1}) {
    resizes<uint8_t>(ops, u8 + sign), resizes<uint16_t>(ops, u16 + sign);
    resizes<uint32_t>(ops, u32 + sign), resizes<uint64_t>(ops, u64 + sign);
  }
  put<Packed>(ops, "cvt.x2.f32");
}

} // namespace ptx
