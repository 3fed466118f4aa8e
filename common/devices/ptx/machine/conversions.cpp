// cvt between all register types.
#include "halves.hpp"

namespace ptx {

uint16_t to_half(double x, Rounding r) {
  const bool negative = std::signbit(x), down_to_zero = r == zero || r == (negative ? up : down);
  const int sign = negative ? 0x8000 : 0;
  x = std::fabs(x);
  if (x != x) return 0x7fff;
  if (x == 0) return uint16_t(sign);
  if (x >= 65536) return uint16_t(sign | (down_to_zero && !std::isinf(x) ? 0x7bff : 0x7c00));
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = std::max(exponent, -13) - 11; // 2^step is one unit of the fraction; a carry goes to the exponent
  const double scaled = std::ldexp(x, -step);
  const double whole = r == nearest ? std::nearbyint(scaled) : down_to_zero ? std::trunc(scaled) : std::ceil(scaled);
  return uint16_t(sign | ((step + 24) * 1024 + int(whole)));
}

namespace {

// imm: 1 to nearest, 2 down, 3 up, 4 to zero, as an integer from 5 on; 16 sat, 32 ftz, 64 relu.
constexpr int64_t sat = 16, ftz = 32, relu = 64;
Rounding rounding(int64_t how) { return how % 16 < 1 || how % 16 > 4 ? nearest : Rounding(how % 16 - 1); }
double whole(double x, int64_t how) {
  how &= 15;
  return how == 5   ? std::nearbyint(x)
         : how == 6 ? std::floor(x)
         : how == 7 ? std::ceil(x)
         : how == 8 ? std::trunc(x)
                    : x;
}

uint16_t to_brain(double x, Rounding r) { // in the mode of r
  if (r == nearest || x != x) return Brain::word(x);
  const auto u = bits<uint32_t>(float(x));
  const bool away = r == (u >> 31 ? down : up);
  return uint16_t((u >> 16) + (away && u & 0xffff));
}

enum Type : uint32_t { u8, s8, u16, s16, u32, s32, u64, s64, f32, f64, f16, bf16 }; // integers are even and signed odd
constexpr const char *types[] = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16"};
constexpr uint32_t type_count = 12, bytes_of[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2, 2};
using Integer = __int128; // holds every integer type

Integer lowest(Type t) { return t % 2 ? -(Integer(1) << (8 * bytes_of[t] - 1)) : 0; }
Integer highest(Type t) { return (Integer(1) << (8 * bytes_of[t] - t % 2)) - 1; }

Integer integer_of(uint64_t word, Type t) {
  const uint32_t unused = 64 - 8 * bytes_of[t];
  return t % 2 ? Integer(int64_t(word << unused) >> unused) : Integer(word);
}
double number_of(uint64_t word, Type t) { // for floating types: exact
  return t == f64   ? bits<double>(word)
         : t == f16 ? from_half(uint32_t(word))
                    : bits<float>(uint32_t(t == bf16 ? word << 16 : word));
}

Integer clamped(Integer x, Type t) { return std::clamp(x, lowest(t), highest(t)); }
Integer to_integer(double x, Type t, Type from, int64_t how) { // beyond its range: the nearest
  x = whole(x, how);
  if (x != x) return from == f64 || bytes_of[t] == 8 ? Integer(1) << (8 * bytes_of[t] - 1) : 0;
  return clamped(Integer(std::clamp(x, -0x1p100, 0x1p100)), t);
}
template <class F> F nearest_to(Integer x) { return x < 0 ? F(int64_t(x)) : F(uint64_t(x)); } // in the mode that is set
double to_odd(Integer x) { // exact, or rounded so that a later rounding to few bits is that of the exact value
  const Integer most = Integer(1) << 53, upper = x >> 11 | ((x & 2047) != 0);
  return -most <= x && x <= most ? double(int64_t(x)) : double(int64_t(upper)) * 2048;
}

uint64_t to_float(double x, Type t, int64_t how) {
  x = whole(x, how);
  if (how & sat) x = saturated(x);
  if (how & relu && x <= 0) x = 0;
  if (t == f16) return to_half(x, rounding(how));
  if (t == bf16) return to_brain(x, rounding(how));
  if (t == f64) return bits<uint64_t>(x);
  const auto y = float(x);
  return bits<uint32_t>(made(how & ftz ? flushed(y) : y));
}

// Any conversion, lane by lane. flags: type of the result + 16 * type of the operand.
void convert(Warp &w, const In *in) {
  const auto to = Type(in->flags & 15), from = Type(in->flags >> 4);
  const int64_t how = in->imm;
  set_mode(mode_of(rounding(how), false));
  for (const int lane : Each{w.mask}) {
    uint64_t word = 0; // the low part first
    std::memcpy(&word, w.reg<uint8_t>(in->a) + bytes_of[from] * uint32_t(lane), bytes_of[from]);
    if (from < f32) {
      Integer x = integer_of(word, from);
      if (how & sat) x = to < f32 ? clamped(x, to) : std::clamp(x, Integer(0), Integer(1));
      word = to < f32    ? uint64_t(x)
             : to == f32 ? bits<uint32_t>(nearest_to<float>(x))
             : to == f64 ? bits<uint64_t>(nearest_to<double>(x))
                         : to_float(to_odd(x), to, how);
    } else {
      double x = number_of(word, from);
      if (from == f32 && how & ftz) x = flushed(float(x));
      word = to < f32 ? uint64_t(to_integer(x, to, from, how)) : to_float(x, to, how);
    }
    std::memcpy(w.reg<uint8_t>(in->d) + bytes_of[to] * uint32_t(lane), &word, bytes_of[to]);
  }
  set_mode(mode_of(nearest, true));
  GO_ON;
}

template <class D, class S> struct Resize { // integers; the sign of D does not matter
  template <bool M> static void run(Warp &w, const In *in) {
    if (in->imm) return convert(w, in);
    each_of<M>(w, in, [](S a) { return D(a); });
    NEXT;
  }
};

// cvt.rn.bf16x2.f32 and f16x2: a is the upper half
void convert_pair(Warp &w, const In *in) {
  set_mode(mode_of(rounding(in->imm), false));
  const float *a = w.reg<float>(in->a), *b = w.reg<float>(in->b);
  uint32_t *d = w.reg<uint32_t>(in->d);
  const auto one = [type = in->c ? bf16 : f16, how = in->imm](float x) { return uint32_t(to_float(x, type, how)); };
  for (const int i : Each{w.mask}) d[i] = one(a[i]) << 16 | one(b[i]);
  set_mode(mode_of(nearest, true));
  GO_ON;
}

// fp8 in pairs, the upper byte of the first operand; 2^Least is the least normal number.
template <int Fraction, int Least, bool Relu> void byte_pairs(Rare rare, const std::string &type) {
  constexpr bool infinite = Fraction == 2;       // e4m3 has no infinity, and its one NaN is the largest word
  static constexpr auto to_byte = [](double x) { // to nearest; beyond the largest number: that number
    if (x != x) return 0x7f;
    if (Relu && x <= 0) x = 0;
    const double size = std::min(std::fabs(x), infinite ? 57344. : 448.);
    const int exponent = std::max(std::ilogb(size), Least);
    const int steps = int(std::nearbyint(std::ldexp(size, Fraction - exponent))); // a carry goes to the exponent
    return int(std::signbit(x)) << 7 | (((exponent - Least) << Fraction) + steps);
  };
  static constexpr auto to_word = [](uint32_t byte) {
    const double part = from_half((byte & 128) << 8 | (byte & 127) << (10 - Fraction));
    const double x = infinite ? part : (byte & 127) == 127 ? NAN : part * 256; // exponents of f16 begin at 2^-14
    return uint32_t(to_half(Relu && x <= 0 ? 0 : x));
  };
  static constexpr auto pair = [](double a, double b) { return uint16_t(to_byte(a) << 8 | to_byte(b)); };
  const std::string relu = Relu ? "relu." : "", to = "cvt.satfinite." + relu + type;
  put(rare, to + ".f32", [](float a, float b) { return pair(double(a), double(b)); });
  put(rare, to + ".f16x2", [](uint32_t a) { return pair(from_half(a >> 16), from_half(a)); });
  put(rare, "cvt." + relu + "f16x2." + type, [](uint16_t a) { return to_word(a >> 8) << 16 | to_word(a & 255); });
}

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
  put(ops, "cvt.x2.f32", convert_pair);
  byte_pairs<3, -6, false>(Rare{ops}, "e4m3x2"), byte_pairs<3, -6, true>(Rare{ops}, "e4m3x2");
  byte_pairs<2, -14, false>(Rare{ops}, "e5m2x2"), byte_pairs<2, -14, true>(Rare{ops}, "e5m2x2");
  put(Rare{ops}, "cvt.rna.tf32.f32", [](uint32_t a) { // ties away from zero; 13 bits are left out
    return (a & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : (a + 0x1000) & ~0x1fffu;
  });
}

} // namespace ptx
