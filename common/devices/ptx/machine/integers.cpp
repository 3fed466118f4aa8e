// Integers, bits, comparisons and choices.
#include "lanes.hpp"

namespace ptx {
namespace {

template <class T> constexpr int width = int(8 * sizeof(T));

template <class T> using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T> T quotient(T a, T b) {
  if (b == 0) return T(-1); // undefined in PTX; as GPUs do
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return T(0 - std::make_unsigned_t<T>(a));
  return T(a / b);
}
template <class T> T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return T(a % b);
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
  binary<T, T, T>(rare, "div." + t, [](T a, T b) { return quotient(a, b); });
  binary<T, T, T>(rare, "rem." + t, [](T a, T b) { return remainder(a, b); });
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
    unary<uint32_t, T>(rare, "bfind." + t, [](T a) {
      U value = std::is_signed_v<T> && a < 0 ? U(~U(a)) : U(a);
      uint32_t found = ~0u;
      for (; value; value >>= 1) ++found;
      return found;
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

// setp: the flags are the relations that make it true.
enum Relation : uint32_t { less = 1, equal = 2, greater = 4, unordered = 8 };

template <class T, bool Flush> struct Compare { // in floating point subnormal numbers may be zeros
  template <bool M> static void lanes(Warp &w, const In *in) {
    const T *a = w.reg<T>(in->a), *b = w.reg<T>(in->b);
    alignas(64) int32_t below[warp_size], same[warp_size], above[warp_size];
    {
      Mode<Flush> mode;
      LANES below[i] = a[i] < b[i] ? -1 : 0, same[i] = a[i] == b[i] ? -1 : 0, above[i] = a[i] > b[i] ? -1 : 0;
    }
    const uint32_t lt = pack(below), eq = pack(same), gt = pack(above), is = in->flags;
    set_combined<M>(w, in,
                    (is & less ? lt : 0) | (is & equal ? eq : 0) | (is & greater ? gt : 0) |
                        (is & unordered ? ~(lt | eq | gt) : 0));
  }
};

template <class T, bool Flush = true> void comparisons(auto &&into, const std::string &t) {
  const auto add = [&](const char *name, uint32_t is) { put<Compare<T, Flush>>(into, name + t, is); };
  add("setp.eq.", equal), add("setp.ne.", less | greater);
  add("setp.lt.", less), add("setp.le.", less | equal);
  add("setp.gt.", greater), add("setp.ge.", greater | equal);
  if constexpr (std::is_floating_point_v<T>) { // the `u` relations are true for a NaN
    add("setp.equ.", equal | unordered), add("setp.neu.", less | greater | unordered);
    add("setp.ltu.", less | unordered), add("setp.leu.", less | equal | unordered);
    add("setp.gtu.", greater | unordered), add("setp.geu.", greater | equal | unordered);
    add("setp.num.", less | equal | greater), add("setp.nan.", unordered);
  }
}

template <class U> struct Select { // c: a predicate
  template <bool M> static void lanes(Warp &w, const In *in) {
    const U *a = w.reg<U>(in->a), *b = w.reg<U>(in->b);
    const uint32_t chosen = *w.reg<uint32_t>(in->c);
    each<M, U>(w, in->d, [=](int i) { return (chosen >> i & 1) ? a[i] : b[i]; });
  }
};

template <class F> struct Logic { // of predicates
  template <bool M> static void lanes(Warp &w, const In *in) {
    set_predicate<M>(w, in->d, F{}(*w.reg<uint32_t>(in->a), *w.reg<uint32_t>(in->b)));
  }
};

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
  comparisons<int16_t>(rare, "s16"), comparisons<int32_t>(ops, "s32"), comparisons<int64_t>(ops, "s64");
  comparisons<uint16_t>(rare, "u16"), comparisons<uint32_t>(ops, "u32"), comparisons<uint64_t>(ops, "u64");
  comparisons<float, true>(ops, "ftz.f32"), comparisons<float, false>(rare, "f32");
  comparisons<double, false>(rare, "f64");
  put<Select<uint16_t>>(rare, "selp.b16"), put<Select<uint32_t>>(ops, "selp.b32"),
      put<Select<uint64_t>>(ops, "selp.b64");
  const auto logic = [&]<class F>(const char *name, F) { put<Logic<F>>(ops, name); };
  logic("and.pred", [](uint32_t a, uint32_t b) { return a & b; });
  logic("or.pred", [](uint32_t a, uint32_t b) { return a | b; });
  logic("xor.pred", [](uint32_t a, uint32_t b) { return a ^ b; });
  logic("not.pred", [](uint32_t a, uint32_t) { return ~a; });
  logic("mov.pred", [](uint32_t a, uint32_t) { return a; });
  put<Split<uint16_t>>(rare, "split.b16"), put<Split<uint32_t>>(rare, "split.b32"),
      put<Split<uint64_t>>(ops, "split.b64");
  put<Join<uint16_t>>(rare, "join.b16"), put<Join<uint32_t>>(rare, "join.b32"), put<Join<uint64_t>>(ops, "join.b64");
  put<Indexed>(ops, "indexed");
}

} // namespace ptx
