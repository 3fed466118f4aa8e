// Products of matrices by a warp, mma.sync and wmma, and the loads and stores of their parts.
#include "halves.hpp"
#include "places.hpp"

namespace ptx {
namespace {

// Numbers of a word of 32 bits, low first.
struct Bf16 {
  static constexpr int in_word = 2;
  static float number(uint32_t word, int n) { return bits<float>(n ? word & 0xffff0000u : word << 16); }
};
struct F16 {
  static constexpr int in_word = 2;
  static float number(uint32_t word, int n) { return from_half(word >> 16 * n); }
};
struct Tf32 { // the low 13 bits do not count
  static constexpr int in_word = 1;
  static float number(uint32_t word, int) { return bits<float>(word & 0xffffe000u); }
};

bool whole_warp(Warp &w, const In *in) {
  if (!gathered(w, in)) return false;
  if (w.mask != all_lanes) return fault(w, in, "a product of matrices without all lanes of the warp"), false;
  return true;
}

template <class T> void spread(const uint32_t *words, float *to) { // first numbers of all words, second numbers
  for (int n = 0; n < T::in_word; ++n) LANES to[warp_size * n + i] = T::number(words[i], n);
}

// d = a b + c: 16 x 8 of fp32 from 16 x K and K x 8. With g = lane / 4 and q = lane % 4, words of a alternate between
// rows g and g + 8, then advance by 4 words of K; words of b are of column g; c and d have columns 2 q and 2 q + 1 of
// row g, then of row g + 8. Products are exact; they are added to c one after another, in the order of K, and subnormal
// numbers are kept.
// more: the registers of d, a, b, c.
template <class T, int K> void multiply(Warp &w, const In *in) {
  if (!whole_warp(w, in)) return;
  set_mode(mode_of(nearest, false));
  constexpr int wide = 4 * T::in_word, deep = K / wide; // a word of all lanes is 8 x wide numbers
  const uint32_t *more = &w.program->more[in->more];
  alignas(64) float a[deep][2][T::in_word][warp_size], b[deep][T::in_word][4][8], c[16][8];
  for (int j = 0; j < 2 * deep; ++j) spread<T>(w.reg<uint32_t>(more[4 + j]), a[j / 2][j % 2][0]);
  for (int j = 0; j < deep; ++j) {
    const uint32_t *words = w.reg<uint32_t>(more[4 + 2 * deep + j]);
    alignas(64) uint32_t turned[4][8];
    uint32_t *x = turned[0], *y = turned[1], *z = turned[2], *u = turned[3];
#pragma GCC ivdep
    for (int g = 0; g < 8; ++g)
      x[g] = words[4 * g], y[g] = words[4 * g + 1], z[g] = words[4 * g + 2], u[g] = words[4 * g + 3];
    spread<T>(turned[0], b[j][0][0]);
  }
  for (int half = 0; half < 2; ++half) {
    const float *even = w.reg<float>(more[4 + 3 * deep + 2 * half]), *odd = w.reg<float>(more[5 + 3 * deep + 2 * half]);
    float *to = c[8 * half];
    LANES to[2 * i] = even[i], to[2 * i + 1] = odd[i];
  }
  for (int half = 0; half < 2; ++half) { // eight rows at once: independent chains of sums
    Eight sum[8];
    std::memcpy(sum, c[8 * half], sizeof sum);
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      const int j = k / wide, q = k % wide / T::in_word, n = k % T::in_word;
      const float *row = &a[j][half][n][q];
      const Eight column = line(b[j][n][q]);
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) sum[g] = fused(row[4 * g] - Eight{}, column, sum[g]);
    }
    std::memcpy(c[8 * half], sum, sizeof sum);
  }
  for (int half = 0; half < 2; ++half) {
    float *even = w.reg<float>(more[2 * half]), *odd = w.reg<float>(more[2 * half + 1]);
    const float *from = c[8 * half];
    LANES even[i] = made(from[2 * i]), odd[i] = made(from[2 * i + 1]);
  }
  set_mode(mode_of(nearest, true));
  GO_ON;
}

// ldmatrix and stmatrix of N matrices of 8 x 8 halves; lanes 8 m .. 8 m + 7 give the addresses of the rows of matrix m.
template <int N, bool Turned, bool Stores> [[gnu::noinline]] bool moved_matrix(Warp &w, const In *in) {
  uint8_t *rows[warp_size];
  uint64_t halves[warp_size][8];
  for (int i = 0; i < 8 * N; ++i)
    if (rows[i] = place(w, in, i, 16, Stores ? writes : reads); !rows[i]) return false;
  const auto each_half = [&](auto does) { // does(register of a lane, bits before the half, its row, its column)
    for (int m = 0; m < N; ++m)
      for (int i = 0; i < 2 * warp_size; ++i) {
        const int row = Turned ? i % 8 : i / 8, column = Turned ? i / 8 : i % 8;
        does(w.reg<uint32_t>(w.program->more[in->more + uint32_t(m)])[i / 2], 16 * (i % 2), 8 * m + row, column);
      }
  };
  constexpr auto lanes = uint32_t((1ull << 8 * N) - 1);
  Races *races = w.grid->races.get();
  if constexpr (Stores) {
    each_half([&](uint32_t word, int at, int row, int column) { halves[row][column] = word >> at & 0xffff; });
    if (races && !races->store(w, in, lanes, rows, 2, 8, &halves[0][0])) return false;
    for (int i = 0; i < 8 * N; ++i) {
      std::ranges::copy(halves[i], reinterpret_cast<uint16_t *>(rows[i]));
      w.grid->touch(rows[i], 16);
    }
  } else {
    if (races && !races->load(w, in, lanes, rows, 4, 4)) return false;
    each_half([&](uint32_t &word, int at, int row, int column) {
      const uint32_t half = reinterpret_cast<const uint16_t *>(rows[row])[column];
      word = at ? word | half << 16 : half;
    });
  }
  return true;
}
template <int N, bool Turned, bool Stores> void move_matrix(Warp &w, const In *in) {
  if (!gathered(w, in) || !moved_matrix<N, Turned, Stores>(w, in)) return;
  GO_ON;
}
template <int N> void matrices(Ops &ops, const std::string &number) {
  put(ops, "ldmatrix" + number, move_matrix<N, false, false>);
  put(ops, "ldmatrix" + number + ".trans", move_matrix<N, true, false>);
  put(ops, "stmatrix" + number, move_matrix<N, false, true>);
  put(ops, "stmatrix" + number + ".trans", move_matrix<N, true, true>);
}

// Any other product, one number at a time in double; each result is rounded once.
enum Element : uint32_t { f16s, bf16s, tf32s, f32s, s8s, u8s, s32s }; // in the order of matrices.py
constexpr int in_word[] = {2, 2, 1, 1, 4, 4, 1};

double value_of(Element kind, uint32_t word, int n) {
  if (kind == f16s) return F16::number(word, n);
  if (kind == bf16s) return Bf16::number(word, n);
  if (kind == tf32s) return Tf32::number(word, n);
  if (kind == f32s) return bits<float>(word);
  return kind == s8s ? int8_t(word >> 8 * n) : kind == u8s ? uint8_t(word >> 8 * n) : int32_t(word);
}
uint32_t word_as(Element kind, double x, bool saturates) { // for an accumulator
  if (kind == f16s) return Half::word(x);
  if (kind == f32s) return bits<uint32_t>(made(float(x)));
  if (saturates) x = std::fmin(std::fmax(x, -0x1p31), 0x1p31 - 1);
  return uint32_t(int64_t(x));
}

enum Role { left, right, sum };
struct Fragment { // a matrix in registers of a warp; opaque: in our own order, which wmma leaves open
  Role part;
  bool opaque;
  Element kind;
  int rows, columns;
  const uint32_t *registers;
  int count;

  // Row-major index of the element in part n of register j of a lane.
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

// imm: bit 0 wmma, bit 1 satfinite. more: m, n, k; then of d, a, b, c: kind, number of registers, registers.
[[gnu::noinline]] void product(Warp &w, const In *in) {
  const Mode mode(false);
  const uint32_t *more = &w.program->more[in->more];
  const int m = int(more[0]), n = int(more[1]), k = int(more[2]);
  const bool opaque = in->imm & 1;
  const uint32_t *next = more + 3;
  const auto fragment = [&](Role part, int rows, int columns) {
    const Fragment made{part, opaque, Element(next[0]), rows, columns, next + 2, int(next[1])};
    next += 2 + next[1];
    return made;
  };
  const Fragment d = fragment(sum, m, n), a = fragment(left, m, k), b = fragment(right, k, n), c = fragment(sum, m, n);
  const std::vector<double> x = a.numbers(w), y = b.numbers(w);
  std::vector<double> z = c.numbers(w);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l) z[size_t(i * n + j)] += x[size_t(i * k + l)] * y[size_t(l * n + j)];
  d.each([&](uint32_t at, int part, int lane, int e) {
    d.put_word(w, at, part, lane, word_as(d.kind, z[size_t(e)], in->imm & 2));
  });
}
void multiply_any(Warp &w, const In *in) {
  if (!whole_warp(w, in)) return;
  product(w, in); // ends its mode before the next instruction
  GO_ON;
}

// wmma.load and wmma.store: [a], b: stride in elements, or 0. more: kind, rows, columns, 1 if column-major, number of
// registers, registers.
template <bool Stores> void move_fragment(Warp &w, const In *in) {
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
        const uint64_t address = address_of(w, in, lane) + place_of * bytes;
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

} // namespace

void add_matrices(Ops &ops) {
  put(ops, "mma.m16n8k16.bf16", multiply<Bf16, 16>), put(ops, "mma.m16n8k8.bf16", multiply<Bf16, 8>);
  put(ops, "mma.m16n8k16.f16", multiply<F16, 16>), put(ops, "mma.m16n8k8.f16", multiply<F16, 8>);
  put(ops, "mma.m16n8k8.tf32", multiply<Tf32, 8>), put(ops, "mma.m16n8k4.tf32", multiply<Tf32, 4>);
  put(ops, "mma.any", multiply_any);
  put(ops, "wmma.load", move_fragment<false>), put(ops, "wmma.store", move_fragment<true>);
  matrices<1>(ops, ".x1"), matrices<2>(ops, ".x2"), matrices<4>(ops, ".x4");
}

} // namespace ptx
