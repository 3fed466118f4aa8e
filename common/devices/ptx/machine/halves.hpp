// 16-bit floats: f16 and bf16, with exact values as double.
#pragma once
#include "lanes.hpp"

namespace ptx {

inline float from_half(uint32_t h) { // the low 16 bits
  const uint32_t sign = h >> 15 << 31, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return bits<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent) return bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float x = float(fraction) * 0x1p-24f;
  return sign ? -x : x;
}
uint16_t to_half(double x, Rounding r = nearest);

struct Half {
  static constexpr double least = 0x1p-14; // that is not subnormal
  static double number(uint16_t word) { return from_half(word); }
  static uint16_t word(double x) { return to_half(x); }
};
struct Brain {
  static constexpr double least = 0x1p-126;
  static double number(uint16_t word) { return bits<float>(uint32_t(word) << 16); }
  static uint16_t word(double value) { // to fp32 rounded to odd, then to nearest: as one rounding
    const float x = float(value);
    uint32_t u = bits<uint32_t>(x);
    if (double(x) == value || !std::isfinite(x)) return rounded(x);
    if (std::fabs(double(x)) > std::fabs(value)) --u;
    return rounded(bits<float>(u | 1));
  }
  static uint16_t rounded(float x) { // to the nearest, ties to even
    const uint32_t u = bits<uint32_t>(x);
    return x != x ? 0x7fff : uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  }
};

// Result of an operation on each half of a word, computed from exact values and rounded once. Called in a mode that
// keeps subnormal numbers.
template <class H, class U, class F> U by_halves(F does, U a, U b, U c) {
  const auto half = [](U word, unsigned at) { return H::number(uint16_t(word >> at)); };
  U d = 0;
  for (unsigned at = 0; at < 8 * sizeof(U); at += 16)
    d |= U(U(H::word(does(half(a, at), half(b, at), half(c, at)))) << at);
  return d;
}

// a b + c, rounded to odd, so that rounding it to fewer bits gives the result of a single rounding.
inline double fused_to_odd(double a, double b, double c) {
  const double x = std::fma(a, b, c), product = a * b; // a product of halves is exact
  const double rest = std::fabs(product) >= std::fabs(c) ? product - x + c : c - x + product;
  if (rest == 0 || !std::isfinite(x)) return x;
  const auto u = bits<uint64_t>(x);
  return u & 1 ? x : std::nextafter(x, rest > 0 ? INFINITY : -INFINITY);
}

} // namespace ptx
