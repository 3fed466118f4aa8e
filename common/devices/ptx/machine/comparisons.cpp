// Comparisons and choices.
#include "halves.hpp"

namespace ptx {
namespace {

// Flags of setp: the relations that make it true.
enum Relation : uint32_t { less = 1, equal = 2, greater = 4, unordered = 8 };

template <class T, bool Flush> struct Compare { // Flush: subnormal numbers are zeros
  template <bool M> static void lanes(Warp &w, const In *in) {
    const T *a = w.reg<T>(in->a), *b = w.reg<T>(in->b);
    alignas(64) int32_t below[warp_size], same[warp_size], above[warp_size];
    if constexpr (!Flush) set_mode(mode_of(nearest, false));
    LANES below[i] = a[i] < b[i] ? -1 : 0, same[i] = a[i] == b[i] ? -1 : 0, above[i] = a[i] > b[i] ? -1 : 0;
    if constexpr (!Flush) set_mode(mode_of(nearest, true));
    const uint32_t lt = pack(below), eq = pack(same), gt = pack(above), is = in->flags;
    set_combined<M>(w, in,
                    (is & less ? lt : 0) | (is & equal ? eq : 0) | (is & greater ? gt : 0) |
                        (is & unordered ? ~(lt | eq | gt) : 0));
  }
};

bool related(double x, double y, uint32_t relations) {
  return relations & (x < y ? less : x == y ? equal : x > y ? greater : unordered);
}
template <class H> struct CompareHalves {
  template <bool M> static void lanes(Warp &w, const In *in) {
    const Mode mode(false);
    const uint16_t *a = w.reg<uint16_t>(in->a), *b = w.reg<uint16_t>(in->b);
    uint32_t found = 0;
    for (int i = 0; i < warp_size; ++i) found |= uint32_t(related(H::number(a[i]), H::number(b[i]), in->flags)) << i;
    set_combined<M>(w, in, found);
  }
};

// set: a half is 1 or, with `ones`, all bits where the relation is true, else 0.
constexpr uint32_t ones = 16;
template <class H, class U> struct SetHalves {
  template <bool M> static void lanes(Warp &w, const In *in) {
    const Mode mode(false);
    const U yes = in->flags & ones ? 0xffff : H::word(1);
    each_of<M>(w, in, [yes, is = in->flags](U a, U b) {
      U found = 0;
      for (unsigned at = 0; at < 8 * sizeof(U); at += 16)
        found |= related(H::number(uint16_t(a >> at)), H::number(uint16_t(b >> at)), is) ? U(yes << at) : U(0);
      return found;
    });
  }
};
struct SetFloats { // 1.0 or 0
  template <bool M> static void lanes(Warp &w, const In *in) {
    const Mode mode(false);
    each_of<M>(w, in, [is = in->flags](float a, float b) { return float(related(double(a), double(b), is)); });
  }
};

void comparisons(bool floats, auto add) {
  add("setp.eq.", equal), add("setp.ne.", less | greater);
  add("setp.lt.", less), add("setp.le.", less | equal);
  add("setp.gt.", greater), add("setp.ge.", greater | equal);
  if (!floats) return;
  add("setp.equ.", equal | unordered), add("setp.neu.", less | greater | unordered); // `u`: true for a NaN, too
  add("setp.ltu.", less | unordered), add("setp.leu.", less | equal | unordered);
  add("setp.gtu.", greater | unordered), add("setp.geu.", greater | equal | unordered);
  add("setp.num.", less | equal | greater), add("setp.nan.", unordered);
}
template <class T, bool Flush = true> void comparisons(auto &&into, const std::string &t) {
  comparisons(std::is_floating_point_v<T>,
              [&](const char *name, uint32_t is) { put<Compare<T, Flush>>(into, name + t, is); });
}
template <class H> void half_comparisons(Rare rare, const std::string &t) {
  comparisons(true, [&](const std::string &name, uint32_t is) {
    const std::string set = "set" + name.substr(name.find('.')), pair = t + "x2";
    put<CompareHalves<H>>(rare, name + t, is);
    put<SetHalves<H, uint16_t>>(rare, set + t + "." + t, is);
    put<SetHalves<H, uint32_t>>(rare, set + pair + "." + pair, is);
    put<SetHalves<H, uint32_t>>(rare, set + "u32." + pair, is | ones);
  });
}

template <class U> struct Select { // c: a predicate
  template <bool M> static void lanes(Warp &w, const In *in) {
    const U *a = w.reg<U>(in->a), *b = w.reg<U>(in->b);
    const uint32_t chosen = *w.reg<uint32_t>(in->c);
    each<M, U>(w, in->d, [=](int i) { return (chosen >> i & 1) ? a[i] : b[i]; });
  }
};

template <class F> struct Logic { // on predicates
  template <bool M> static void lanes(Warp &w, const In *in) {
    set_predicate<M>(w, in->d, F{}(*w.reg<uint32_t>(in->a), *w.reg<uint32_t>(in->b)));
  }
};

} // namespace

void add_comparisons(Ops &ops) {
  const Rare rare{ops};
  comparisons<int16_t>(rare, "s16"), comparisons<int32_t>(ops, "s32"), comparisons<int64_t>(ops, "s64");
  comparisons<uint16_t>(rare, "u16"), comparisons<uint32_t>(ops, "u32"), comparisons<uint64_t>(ops, "u64");
  comparisons<float, true>(ops, "ftz.f32"), comparisons<float, false>(rare, "f32");
  comparisons<double, false>(rare, "f64");
  comparisons(true, [&](std::string name, auto is) { put<SetFloats>(rare, "set" + name.substr(4) + "f32.f32", is); });
  half_comparisons<Half>(rare, "f16"), half_comparisons<Brain>(rare, "bf16");
  put<Select<uint16_t>>(rare, "selp.b16");
  put<Select<uint32_t>>(ops, "selp.b32"), put<Select<uint64_t>>(ops, "selp.b64");
  const auto logic = [&]<class F>(const char *name, F) { put<Logic<F>>(ops, name); };
  logic("and.pred", [](uint32_t a, uint32_t b) { return a & b; });
  logic("or.pred", [](uint32_t a, uint32_t b) { return a | b; });
  logic("xor.pred", [](uint32_t a, uint32_t b) { return a ^ b; });
  logic("not.pred", [](uint32_t a, uint32_t) { return ~a; });
  logic("mov.pred", [](uint32_t a, uint32_t) { return a; });
}

} // namespace ptx
