// Products of matrices of any element, one number at a time: mma.sync beyond matrices.cpp, and wmma. Numbers are exact,
// and each sum is rounded once.
#include "halves.hpp"
#include "places.hpp"

namespace ptx {
namespace {

enum Element : uint32_t { f16s, bf16s, tf32s, f32s, s8s, u8s, s32s }; // in the order of fragments.py
constexpr int in_word[] = {2, 2, 1, 1, 4, 4, 1};

double value_of(Element kind, uint32_t word, int n) {
  switch (kind) {
  case f16s:
    return Half::number(uint16_t(word >> 16 * n));
  case bf16s:
    return Brain::number(uint16_t(word >> 16 * n));
  case tf32s: // the low 13 bits do not count
    return bits<float>(word & 0xffffe000u);
  case f32s:
    return bits<float>(word);
  case s8s:
    return int8_t(word >> 8 * n);
  case u8s:
    return uint8_t(word >> 8 * n);
  default:
    return int32_t(word);
  }
}
uint32_t word_as(Element kind, double x, bool saturates) { // for an accumulator
  if (kind == f16s) return Half::word(x);
  if (kind == f32s) return bits<uint32_t>(made(float(x)));
  if (saturates) x = std::fmin(std::fmax(x, -0x1p31), 0x1p31 - 1);
  return uint32_t(int64_t(x));
}

enum Role { left, right, sum };
struct Fragment { // a matrix in registers of a warp; opaque: in an order of our own, as wmma leaves it open
  Role part;
  bool opaque;
  Element kind;
  int rows, columns;
  const uint32_t *registers;
  int count;

  // Number of an element, from the first row on, by register, part of it, and lane.
  int element(int j, int n, int lane) const {
    const int each = in_word[kind], g = lane / 4, q = lane % 4;
    if (opaque) return ((lane * count + j) * each + n) % (rows * columns); // some have several copies
    if (part == left) return (g + 8 * (j % 2)) * columns + (j / 2 * 4 + q) * each + n;
    if (part == right) return ((j * 4 + q) * each + n) * columns + g;
    return each == 2 ? (g + 8 * j) * columns + 2 * q + n : (g + 8 * (j / 2)) * columns + 2 * q + j % 2;
  }
  template <class F> void each(F does) const { // does(register, bit in it, lane, element)
    for (int j = 0; j < count; ++j)
      for (int lane = 0; lane < warp_size; ++lane)
        for (int n = 0; n < in_word[kind]; ++n) does(registers[j], n, lane, element(j, n, lane));
  }
  std::vector<double> numbers(const Warp &w) const {
    std::vector<double> found(size_t(rows * columns));
    each([&](uint32_t at, int n, int lane, int e) { found[size_t(e)] = value_of(kind, w.reg<uint32_t>(at)[lane], n); });
    return found;
  }
  void put_word(const Warp &w, uint32_t at, int n, int lane, uint32_t value) const {
    const int width = 32 / in_word[kind];
    const uint32_t ones = width == 32 ? ~0u : (1u << width) - 1;
    uint32_t &word = w.reg<uint32_t>(at)[lane];
    word = (word & ~(ones << width * n)) | (value & ones) << width * n;
  }
};

bool whole_warp(Warp &w, const In *in) {
  if (!gathered(w, in, all_lanes)) return false;
  if (w.mask != all_lanes) return fault(w, in, "a product of matrices without all lanes of the warp"), false;
  return true;
}

// imm: bit 0 wmma, bit 1 satfinite. more: m, n, k; then of d, a, b, c: kind, number of registers, registers.
struct MultiplyAny {
  static void run(Warp &w, const In *in) {
    if (!whole_warp(w, in)) return;
    const Mode<false> mode;
    const uint32_t *more = &w.program->more[in->more];
    const int m = int(more[0]), n = int(more[1]), k = int(more[2]);
    const bool opaque = in->imm & 1;
    const uint32_t *next = more + 3;
    const auto fragment = [&](Role part, int rows, int columns) {
      const Fragment made{part, opaque, Element(next[0]), rows, columns, next + 2, int(next[1])};
      next += 2 + next[1];
      return made;
    };
    const Fragment d = fragment(sum, m, n), a = fragment(left, m, k), b = fragment(right, k, n),
                   c = fragment(sum, m, n);
    const std::vector<double> x = a.numbers(w), y = b.numbers(w);
    std::vector<double> z = c.numbers(w);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int l = 0; l < k; ++l) z[size_t(i * n + j)] += x[size_t(i * k + l)] * y[size_t(l * n + j)];
    d.each([&](uint32_t at, int part, int lane, int e) {
      d.put_word(w, at, part, lane, word_as(d.kind, z[size_t(e)], in->imm & 2));
    });
    GO_ON;
  }
};

// wmma.load and wmma.store: [a], b: elements from a row or column to the next, or 0. more: kind, rows, columns, 1 if
// columns follow one another in memory, number of registers, registers.
template <bool Stores> struct Move {
  static void run(Warp &w, const In *in) {
    if (!whole_warp(w, in)) return;
    const Flags f{in->flags};
    const uint32_t *more = &w.program->more[in->more];
    const Fragment all{sum, true, Element(more[0]), int(more[1]), int(more[2]), more + 5, int(more[4])};
    const bool turned = more[3];
    const uint32_t bytes = 4 / uint32_t(in_word[all.kind]);
    for (int j = 0; j < all.count; ++j)
      for (int n = 0; n < in_word[all.kind]; ++n) { // an element of each lane at once
        uint8_t *at[warp_size];
        uint64_t values[warp_size];
        for (int lane = 0; lane < warp_size; ++lane) {
          const int e = all.element(j, n, lane), row = e / all.columns, column = e % all.columns;
          const auto step = in->b ? w.reg<uint32_t>(in->b)[lane] : uint32_t(turned ? all.rows : all.columns);
          const uint64_t place_of = uint64_t(turned ? column : row) * step + uint64_t(turned ? row : column);
          const uint64_t address = address_of(w, in->a, f.wide(), lane) + uint64_t(in->imm) + place_of * bytes;
          at[lane] = place(w, in, f.space(), lane, address, bytes, Stores ? writes : reads);
          if (!at[lane]) return;
          values[lane] = w.reg<uint32_t>(all.registers[j])[lane] >> 8 * bytes * uint32_t(n);
        }
        Races *races = w.grid->races.get();
        if (races &&
            !(Stores ? races->store(w, in, w.mask, at, bytes, 1, values) : races->load(w, in, w.mask, at, bytes, 1)))
          return;
        for (int lane = 0; lane < warp_size; ++lane) {
          uint32_t word = 0;
          if (Stores)
            std::memcpy(at[lane], &values[lane], bytes), w.grid->touch(at[lane], bytes);
          else
            std::memcpy(&word, at[lane], bytes), all.put_word(w, all.registers[j], n, lane, word);
        }
      }
    GO_ON;
  }
};

} // namespace

void add_fragments(Ops &ops) {
  put<MultiplyAny>(ops, "mma.any"), put<Move<false>>(ops, "wmma.load"), put<Move<true>>(ops, "wmma.store");
}

} // namespace ptx
