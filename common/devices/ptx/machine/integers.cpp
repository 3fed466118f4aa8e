// Integers and bits.
#include "lanes.hpp"

namespace ptx {
namespace {

template <class T> constexpr int width = int(8 * sizeof(T));

template <class T> using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

// a / b or a % b. Division by zero, which PTX leaves open, gives a large number, and a note: compilers move it.
template <class T, bool Rest> void divide(Warp &w, const In *in) {
  for (const int lane : Each{w.mask}) {
    const T a = w.reg<T>(in->a)[lane], b = w.reg<T>(in->b)[lane];
    const bool turns = std::is_signed_v<T> && b == T(-1); // the CPU faults at the lowest number
    if (b == 0) w.grid->note(w, in, "an integer is divided by zero", 1u << lane);
    w.reg<T>(in->d)[lane] = b == 0  ? T(0xffa5ffa5ffa5ffa5)
                            : turns ? (Rest ? T(0) : T(0 - std::make_unsigned_t<T>(a)))
                                    : T(Rest ? a % b : a / b);
  }
  GO_ON;
}

template <class T> uint32_t like_sign(T a) { // leading bits that only repeat the sign, or zeros of an unsigned number
  return uint32_t(std::countl_zero(std::make_unsigned_t<T>(std::is_signed_v<T> && a < 0 ? ~a : a)));
}

// Operations that ignore the sign; U is unsigned.
template <class U> void modular(auto &&into, const std::string &t) {
  put(into, "add." + t, [](U a, U b) { return U(a + b); });
  put(into, "sub." + t, [](U a, U b) { return U(a - b); });
  put(into, "mul.lo." + t, [](U a, U b) { return U(Wide<U>(a) * b); });
  put(into, "mad.lo." + t, [](U a, U b, U c) { return U(Wide<U>(a) * b + c); });
  put(into, "and." + t, [](U a, U b) { return U(a & b); });
  put(into, "or." + t, [](U a, U b) { return U(a | b); });
  put(into, "xor." + t, [](U a, U b) { return U(a ^ b); });
  put(into, "not." + t, [](U a) { return U(~a); });
  put(into, "cnot." + t, [](U a) { return U(a == 0); });
  put(into, "mov." + t, [](U a) { return a; });
  put(into, "neg." + t, [](U a) { return U(U(0) - a); });
  put(into, "shl." + t, [](U a, uint32_t n) { return n < width<U> ? U(a << n) : U(0); });
}

template <class T> void signed_or_not(Rare rare, auto &&into, const std::string &t) {
  using U = std::make_unsigned_t<T>;
  put(into, "min." + t, [](T a, T b) { return a < b ? a : b; });
  put(into, "max." + t, [](T a, T b) { return a > b ? a : b; });
  put(rare, "sad." + t, [](T a, T b, T c) { return T(U(c) + (a < b ? U(b) - U(a) : U(a) - U(b))); });
  put(rare.ops, "div." + t, divide<T, false>), put(rare.ops, "rem." + t, divide<T, true>);
  put(rare, "mul.hi." + t, [](T a, T b) { return T(Wide<T>(a) * b >> width<T>); });
  put(rare, "mad.hi." + t, [](T a, T b, T c) { return T(U(Wide<T>(a) * b >> width<T>) + U(c)); });
  put(into, "shr." + t,
      [](T a, uint32_t n) { return n < width<T> ? T(a >> n) : T(std::is_signed_v<T> && a < 0 ? -1 : 0); });
  if constexpr (sizeof(T) < 8) {
    using V = Wide<T>;
    using UV = std::make_unsigned_t<V>;
    put(into, "mul.wide." + t, [](T a, T b) { return V(V(a) * V(b)); });
    put(into, "mad.wide." + t, [](T a, T b, V c) { return V(UV(V(a) * V(b)) + UV(c)); });
  }
  if constexpr (std::is_signed_v<T>) put(into, "abs." + t, [](T a) { return T(a < 0 ? U(0) - U(a) : U(a)); });
  if constexpr (sizeof(T) >= 4) {
    put(rare, "bfe." + t, [](T a, uint32_t at, uint32_t n) {
      at &= 255, n &= 255;
      constexpr uint32_t msb = width<T> - 1;
      const bool sign = std::is_signed_v<T> && n != 0 && (U(a) >> std::min(at + n - 1, msb) & 1);
      U found = 0;
      for (uint32_t i = 0; i <= msb; ++i) found |= U(i < n && at + i <= msb ? U(a) >> (at + i) & 1 : U(sign)) << i;
      return T(found);
    });
    put(rare, "bfind." + t, [](T a) { return uint32_t(width<T> - 1) - like_sign(a); });
    put(rare, "bfind.shiftamt." + t, [](T a) { return like_sign(a) == uint32_t(width<T>) ? ~0u : like_sign(a); });
  }
}

template <class U> void bit_fields(Rare rare, const std::string &t) {
  put(rare, "popc." + t, [](U a) { return uint32_t(std::popcount(a)); });
  put(rare, "addc." + t, [](U a, U b, uint32_t carry) { return U(a + b + carry); });
  put(rare, "subc." + t, [](U a, U b, uint32_t borrow) { return U(a - b - borrow); });
  put(rare, "addc.carry." + t, [](U a, U b, uint32_t k) { return uint32_t((Wide<U>(a) + b + k) >> width<U>); });
  put(rare, "subc.carry." + t, [](U a, U b, uint32_t k) { return uint32_t(a < b || U(a - b) < k); });
  put(rare, "clz." + t, [](U a) { return uint32_t(std::countl_zero(a)); });
  put(rare, "brev." + t, [](U a) {
    U found = 0;
    for (int i = 0; i < width<U>; ++i) found |= U(a >> i & 1) << (width<U> - 1 - i);
    return found;
  });
}

template <class A, class B> void dot(Rare rare, const std::string &types) { // bytes of b with bytes or halves of a
  put(rare, "dp4a." + types, [](uint32_t a, uint32_t b, uint32_t c) {
    for (int at = 0; at < 32; at += 8) c += uint32_t(A(a >> at) * B(b >> at));
    return c;
  });
  using Short = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
  static constexpr auto halves = [](uint32_t a, uint32_t b, uint32_t c) {
    return c + uint32_t(Short(a) * B(b)) + uint32_t(Short(a >> 16) * B(b >> 8));
  };
  put(rare, "dp2a.lo." + types, halves);
  put(rare, "dp2a.hi." + types, [](uint32_t a, uint32_t b, uint32_t c) { return halves(a, b >> 16, c); });
}

template <int Bits, bool Sums> void distances(Rare rare, const std::string &name) { // of fields, or their sum
  put(rare, name, [](uint32_t a, uint32_t b, uint32_t c) {
    uint32_t found = Sums ? c : 0;
    for (int at = 32 - Bits; at >= 0; at -= Bits) {
      const uint32_t x = a << at >> (32 - Bits), y = b << at >> (32 - Bits), apart = std::max(x, y) - std::min(x, y);
      found += Sums ? apart : apart << (32 - Bits - at);
    }
    return found;
  });
}

template <class T> void pairs(Rare rare, const std::string &t) { // two integers of 16 bits
  const auto add = [&]<class F>(const std::string &op, F) {
    put(rare, op + t, [](uint32_t a, uint32_t b) {
      return uint32_t(uint16_t(F{}(T(a), T(b)))) | uint32_t(F{}(T(a >> 16), T(b >> 16))) << 16;
    });
  };
  add("add.", [](T a, T b) { return T(a + b); });
  add("min.", [](T a, T b) { return std::min(a, b); }), add("max.", [](T a, T b) { return std::max(a, b); });
  if constexpr (std::is_unsigned_v<T>) return;
  add("min.relu.", [](T a, T b) { return std::max(std::min(a, b), T(0)); });
  add("max.relu.", [](T a, T b) { return std::max({a, b, T(0)}); });
}

// bfi: a into b from bit c on; more: the register with the number of bits.
template <class U> struct Insert {
  template <bool M> static void lanes(Warp &w, const In *in) {
    const U *a = w.reg<U>(in->a), *b = w.reg<U>(in->b);
    const uint32_t *at = w.reg<uint32_t>(in->c), *count = w.reg<uint32_t>(w.program->more[in->more]);
    each<M, U>(w, in->d, [=](int i) {
      const uint32_t p = at[i] & 255, n = count[i] & 255;
      if (n == 0 || p >= uint32_t(width<U>)) return b[i];
      const U ones = n >= uint32_t(width<U>) ? U(~U(0)) : U((U(1) << n) - 1);
      return U((b[i] & ~U(ones << p)) | U((a[i] & ones) << p));
    });
  }
};

struct Lop3 { // imm: the table of the function
  template <bool M> static void lanes(Warp &w, const In *in) {
    each_of<M>(w, in, [table = uint32_t(in->imm)](uint32_t a, uint32_t b, uint32_t c) {
      uint32_t found = 0;
      for (uint32_t k = 0; k < 8; ++k)
        if (table >> k & 1) found |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
      return found;
    });
  }
};

void funnels(Rare rare) { // shifts of the 64 bits b:a
  using U = uint32_t;
  put(rare, "shf.l.wrap.b32", [](U a, U b, U c) { return U((uint64_t(b) << 32 | a) << (c & 31) >> 32); });
  put(rare, "shf.r.wrap.b32", [](U a, U b, U c) { return U((uint64_t(b) << 32 | a) >> (c & 31)); });
  put(rare, "shf.l.clamp.b32", [](U a, U b, U c) { return U((uint64_t(b) << 32 | a) << (c < 32 ? c : 32) >> 32); });
  put(rare, "shf.r.clamp.b32", [](U a, U b, U c) { return U((uint64_t(b) << 32 | a) >> (c < 32 ? c : 32)); });
  put(rare, "prmt.b32", [](U a, U b, U c) {
    U found = 0;
    for (int k = 0; k < 4; ++k) {
      const U how = c >> 4 * k & 15, byte = U((uint64_t(b) << 32 | a) >> 8 * (how & 7)) & 255;
      found |= (how & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * k;
    }
    return found;
  });
}

// does(part, its type, bits from the register's low end) for each part of a mov between a register and `more`, low
// first; imm: their number.
template <class U> void each_part(const Warp &w, const In *in, auto does) {
  const auto parts = [&]<class Part>(Part) {
    for (unsigned k = 0; k < unsigned(in->imm); ++k)
      if (const uint32_t at = w.program->more[in->more + k]) does(w.reg<Part>(at), 8 * sizeof(Part) * k); // else `_`
  };
  const size_t bytes = sizeof(U) / size_t(in->imm);
  bytes == 4 ? parts(uint32_t{}) : bytes == 2 ? parts(uint16_t{}) : parts(uint8_t{});
}
template <class U> struct Split { // mov of a register to its parts
  template <bool M> static void lanes(Warp &w, const In *in) {
    const uint32_t mask = M ? w.mask : all_lanes;
    const U *a = w.reg<U>(in->a);
    each_part<U>(w, in,
                 [&]<class Part>(Part *d, unsigned at) { LANES d[i] = (mask >> i & 1) ? Part(a[i] >> at) : d[i]; });
  }
};
template <class U> struct Join { // mov of the parts to one register
  template <bool M> static void lanes(Warp &w, const In *in) {
    alignas(64) U whole[warp_size] = {};
    each_part<U>(w, in, [&](const auto *a, unsigned at) { LANES whole[i] |= U(U(a[i]) << at); });
    each<M, U>(w, in->d, [&](int i) { return whole[i]; });
  }
};

} // namespace

void add_integers(Ops &ops) {
  const Rare rare{ops};
  modular<uint16_t>(rare, "b16"), modular<uint32_t>(ops, "b32"), modular<uint64_t>(ops, "b64");
  signed_or_not<int16_t>(rare, rare, "s16"), signed_or_not<uint16_t>(rare, rare, "u16");
  signed_or_not<int32_t>(rare, ops, "s32"), signed_or_not<uint32_t>(rare, ops, "u32");
  signed_or_not<int64_t>(rare, ops, "s64"), signed_or_not<uint64_t>(rare, ops, "u64");
  bit_fields<uint32_t>(rare, "b32"), bit_fields<uint64_t>(rare, "b64");
  put<Insert<uint32_t>>(rare, "bfi.b32"), put<Insert<uint64_t>>(rare, "bfi.b64");
  put<Lop3>(ops, "lop3.b32");
  funnels(rare);
  dot<int8_t, int8_t>(rare, "s32.s32"), dot<int8_t, uint8_t>(rare, "s32.u32");
  dot<uint8_t, int8_t>(rare, "u32.s32"), dot<uint8_t, uint8_t>(rare, "u32.u32");
  distances<16, false>(rare, "vabsdiff2.u32.u32.u32"), distances<16, true>(rare, "vabsdiff2.u32.u32.u32.add");
  distances<8, false>(rare, "vabsdiff4.u32.u32.u32"), distances<8, true>(rare, "vabsdiff4.u32.u32.u32.add");
  pairs<int16_t>(rare, "s16x2"), pairs<uint16_t>(rare, "u16x2");
  put(rare, "min.relu.s32", [](int32_t a, int32_t b) { return std::max(std::min(a, b), 0); });
  put(rare, "max.relu.s32", [](int32_t a, int32_t b) { return std::max({a, b, 0}); });
  put(rare, "fns.b32", [](uint32_t a, uint32_t at, int32_t n) { // the n-th bit upwards or downwards; 0: this one
    const uint32_t step = n < 0 ? ~0u : n ? 1 : 32;
    for (int left = n ? std::abs(n) : 1; at < 32; at += step)
      if ((a >> at & 1) && --left == 0) return at;
    return ~0u;
  });
  put(rare, "bmsk.clamp.b32", [](uint32_t a, uint32_t b) { // b bits from bit a on
    return a < 32 ? uint32_t(((uint64_t(1) << std::min(b, 32u)) - 1) << a) : 0;
  });
  put<Split<uint16_t>>(rare, "split.b16"), put<Split<uint32_t>>(rare, "split.b32");
  put<Join<uint16_t>>(rare, "join.b16"), put<Join<uint32_t>>(rare, "join.b32");
  put<Split<uint64_t>>(ops, "split.b64"), put<Join<uint64_t>>(ops, "join.b64");
}

} // namespace ptx
