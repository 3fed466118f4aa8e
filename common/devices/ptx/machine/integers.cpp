// Integers and bits.
#include "lanes.hpp"

namespace ptx {
namespace {

template <class T> constexpr int width = int(8 * sizeof(T));

template <class T> using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

// a / b or a % b. By zero PTX leaves the result open: a fault.
template <class T, bool Rest> struct Divide {
  static T result(T a, T b) {
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Rest ? T(0) : T(0 - std::make_unsigned_t<T>(a));
    return T(Rest ? a % b : a / b);
  }
  static void run(Warp &w, const In *in) {
    const T *a = w.reg<T>(in->a), *b = w.reg<T>(in->b);
    T *d = w.reg<T>(in->d);
    for (uint32_t left = w.mask; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      if (b[lane] == 0) return fault(w, in, "an integer is divided by zero", 1u << lane);
      d[lane] = result(a[lane], b[lane]);
    }
    GO_ON;
  }
};

template <class T> uint32_t like_sign(T a) { // leading bits that only repeat the sign, or zeros of an unsigned number
  using U = std::make_unsigned_t<T>;
  const U value = std::is_signed_v<T> && a < 0 ? U(~U(a)) : U(a);
  return uint32_t(value ? __builtin_clzll(value) - (64 - width<T>) : width<T>);
}

// Operations that ignore the sign; U is unsigned.
template <class U> void modular(auto &&into, const std::string &t) {
  binary<U, U, U>(into, "add." + t, [](U a, U b) { return U(a + b); });
  binary<U, U, U>(into, "sub." + t, [](U a, U b) { return U(a - b); });
  binary<U, U, U>(into, "mul.lo." + t, [](U a, U b) { return U(Wide<U>(a) * b); });
  ternary<U, U, U, U>(into, "mad.lo." + t, [](U a, U b, U c) { return U(Wide<U>(a) * b + c); });
  binary<U, U, U>(into, "and." + t, [](U a, U b) { return U(a & b); });
  binary<U, U, U>(into, "or." + t, [](U a, U b) { return U(a | b); });
  binary<U, U, U>(into, "xor." + t, [](U a, U b) { return U(a ^ b); });
  unary<U, U>(into, "not." + t, [](U a) { return U(~a); });
  unary<U, U>(into, "cnot." + t, [](U a) { return U(a == 0); });
  unary<U, U>(into, "mov." + t, [](U a) { return a; });
  unary<U, U>(into, "neg." + t, [](U a) { return U(U(0) - a); });
  binary<U, U, uint32_t>(into, "shl." + t, [](U a, uint32_t n) { return n < width<U> ? U(a << n) : U(0); });
}

template <class T> void signed_or_not(Rare rare, auto &&into, const std::string &t) {
  using U = std::make_unsigned_t<T>;
  binary<T, T, T>(into, "min." + t, [](T a, T b) { return a < b ? a : b; });
  binary<T, T, T>(into, "max." + t, [](T a, T b) { return a > b ? a : b; });
  put<Divide<T, false>>(rare.ops, "div." + t), put<Divide<T, true>>(rare.ops, "rem." + t);
  binary<T, T, T>(rare, "mul.hi." + t, [](T a, T b) { return T(Wide<T>(a) * b >> width<T>); });
  ternary<T, T, T, T>(rare, "mad.hi." + t, [](T a, T b, T c) { return T(U(Wide<T>(a) * b >> width<T>) + U(c)); });
  binary<T, T, uint32_t>(into, "shr." + t, [](T a, uint32_t n) {
    return n < width<T> ? T(a >> n) : T(std::is_signed_v<T> && a < 0 ? -1 : 0);
  });
  if constexpr (sizeof(T) < 8) {
    binary<Wide<T>, T, T>(into, "mul.wide." + t, [](T a, T b) { return Wide<T>(a) * Wide<T>(b); });
    ternary<Wide<T>, T, T, Wide<T>>(into, "mad.wide." + t, [](T a, T b, Wide<T> c) {
      return Wide<T>(std::make_unsigned_t<Wide<T>>(Wide<T>(a) * Wide<T>(b)) + std::make_unsigned_t<Wide<T>>(c));
    });
  }
  if constexpr (std::is_signed_v<T>) unary<T, T>(into, "abs." + t, [](T a) { return T(a < 0 ? U(0) - U(a) : U(a)); });
  if constexpr (sizeof(T) >= 4) {
    ternary<T, T, uint32_t, uint32_t>(rare, "bfe." + t, [](T a, uint32_t at, uint32_t n) {
      at &= 255, n &= 255;
      constexpr uint32_t msb = width<T> - 1;
      const uint32_t last = at + n - 1 < msb ? at + n - 1 : msb;
      const bool sign = std::is_signed_v<T> && n != 0 && (U(a) >> last & 1);
      U found = 0;
      for (uint32_t i = 0; i <= msb; ++i) found |= U(i < n && at + i <= msb ? U(a) >> (at + i) & 1 : U(sign)) << i;
      return T(found);
    });
    unary<uint32_t, T>(rare, "bfind." + t, [](T a) { return uint32_t(width<T> - 1) - like_sign(a); });
    unary<uint32_t, T>(rare, "bfind.shiftamt." + t, [](T a) {
      const uint32_t amount = like_sign(a);
      return amount == uint32_t(width<T>) ? ~0u : amount;
    });
  }
}

template <class U> void bit_fields(Rare rare, const std::string &t) {
  unary<uint32_t, U>(rare, "popc." + t, [](U a) { return uint32_t(__builtin_popcountll(a)); });
  unary<uint32_t, U>(rare, "clz." + t,
                     [](U a) { return uint32_t(a ? __builtin_clzll(a) - (64 - width<U>) : width<U>); });
  unary<U, U>(rare, "brev." + t, [](U a) {
    U found = 0;
    for (int i = 0; i < width<U>; ++i) found |= U(a >> i & 1) << (width<U> - 1 - i);
    return found;
  });
}

// bfi a into b from bit c on; number of bits: imm, or the register in `more`.
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
    const uint32_t *a = w.reg<uint32_t>(in->a), *b = w.reg<uint32_t>(in->b), *c = w.reg<uint32_t>(in->c);
    const auto table = uint32_t(in->imm);
    each<M, uint32_t>(w, in->d, [=](int i) {
      uint32_t found = 0;
      for (uint32_t k = 0; k < 8; ++k)
        if (table >> k & 1) found |= (k & 4 ? a[i] : ~a[i]) & (k & 2 ? b[i] : ~b[i]) & (k & 1 ? c[i] : ~c[i]);
      return found;
    });
  }
};

void funnels(Rare rare) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(rare, "shf.l.wrap.b32", [](uint32_t a, uint32_t b, uint32_t c) {
    return uint32_t((uint64_t(b) << 32 | a) << (c & 31) >> 32);
  });
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(rare, "shf.r.wrap.b32", [](uint32_t a, uint32_t b, uint32_t c) {
    return uint32_t((uint64_t(b) << 32 | a) >> (c & 31));
  });
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(rare, "shf.l.clamp.b32", [](uint32_t a, uint32_t b, uint32_t c) {
    return uint32_t((uint64_t(b) << 32 | a) << (c < 32 ? c : 32) >> 32);
  });
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(rare, "shf.r.clamp.b32", [](uint32_t a, uint32_t b, uint32_t c) {
    return uint32_t((uint64_t(b) << 32 | a) >> (c < 32 ? c : 32));
  });
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(rare, "prmt.b32", [](uint32_t a, uint32_t b, uint32_t c) {
    uint32_t found = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t how = c >> 4 * k & 15, byte = uint32_t((uint64_t(b) << 32 | a) >> 8 * (how & 7)) & 255;
      found |= (how & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * k;
    }
    return found;
  });
}

template <class U> struct Split { // mov of a register to its parts in `more`, low first; imm: their number
  template <class Part> static void part(Warp &w, const In *in, uint32_t mask) {
    const U *a = w.reg<U>(in->a);
    for (int k = 0; k < in->imm; ++k) {
      const uint32_t at = w.program->more[in->more + uint32_t(k)];
      if (at == 0) continue; // `_`
      Part *d = w.reg<Part>(at);
      LANES d[i] = (mask >> i & 1) ? Part(a[i] >> 8 * sizeof(Part) * unsigned(k)) : d[i];
    }
  }
  template <bool M> static void lanes(Warp &w, const In *in) {
    const uint32_t mask = M ? w.mask : all_lanes;
    if (sizeof(U) == 8 && in->imm == 2)
      part<uint32_t>(w, in, mask);
    else if (sizeof(U) == uint64_t(2 * in->imm))
      part<uint16_t>(w, in, mask);
    else
      part<uint8_t>(w, in, mask);
  }
};

template <class U> struct Join { // mov of the parts in `more` to one register
  template <class Part> static void part(Warp &w, const In *in, uint32_t mask) {
    alignas(64) U whole[warp_size] = {};
    for (int k = 0; k < in->imm; ++k) {
      const Part *a = w.reg<Part>(w.program->more[in->more + uint32_t(k)]);
      LANES whole[i] |= U(U(a[i]) << 8 * sizeof(Part) * unsigned(k));
    }
    U *d = w.reg<U>(in->d);
    LANES d[i] = (mask >> i & 1) ? whole[i] : d[i];
  }
  template <bool M> static void lanes(Warp &w, const In *in) {
    const uint32_t mask = M ? w.mask : all_lanes;
    if (sizeof(U) == 8 && in->imm == 2)
      part<uint32_t>(w, in, mask);
    else if (sizeof(U) == uint64_t(2 * in->imm))
      part<uint16_t>(w, in, mask);
    else
      part<uint8_t>(w, in, mask);
  }
};

// Three rows, see fuse.cpp. more: d, e, a, b, n of d = e + ((a + b) << n).
struct Indexed {
  static void run(Warp &w, const In *in) {
    const uint32_t *more = &w.program->more[in->more], n = more[4];
    uint64_t *d = w.reg<uint64_t>(more[0]);
    const uint64_t *e = w.reg<uint64_t>(more[1]), *a = w.reg<uint64_t>(more[2]), *b = w.reg<uint64_t>(more[3]);
    LANES d[i] = e[i] + ((a[i] + b[i]) << n);
    in += 3;
    return in->run[0](w, in);
  }
};

} // namespace

void add_integers(Ops &ops) {
  const Rare rare{ops};
  modular<uint16_t>(rare, "b16"), modular<uint32_t>(ops, "b32"), modular<uint64_t>(ops, "b64");
  signed_or_not<int16_t>(rare, rare, "s16"), signed_or_not<int32_t>(rare, ops, "s32"),
      signed_or_not<int64_t>(rare, ops, "s64");
  signed_or_not<uint16_t>(rare, rare, "u16"), signed_or_not<uint32_t>(rare, ops, "u32"),
      signed_or_not<uint64_t>(rare, ops, "u64");
  bit_fields<uint32_t>(rare, "b32"), bit_fields<uint64_t>(rare, "b64");
  put<Insert<uint32_t>>(rare, "bfi.b32"), put<Insert<uint64_t>>(rare, "bfi.b64");
  put<Lop3>(ops, "lop3.b32");
  funnels(rare);
  put<Split<uint16_t>>(rare, "split.b16"), put<Split<uint32_t>>(rare, "split.b32"),
      put<Split<uint64_t>>(ops, "split.b64");
  put<Join<uint16_t>>(rare, "join.b16"), put<Join<uint32_t>>(rare, "join.b32"), put<Join<uint64_t>>(ops, "join.b64");
  put<Indexed>(ops, "indexed");
}

} // namespace ptx
