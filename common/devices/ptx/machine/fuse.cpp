// Fused rows: frequent sequences executed as one for a whole warp, with intermediate values in registers of the CPU.
// The single rows remain, for diverged lanes.
#include "loads.hpp"

namespace ptx {
namespace {

using Words = uint32_t __attribute__((vector_size(32)));

// The sum plus the products of a word of two bf16 with two factors, one after the other, for eight lanes.
inline Eight with_products(Words pair, Eight low, Eight high, Eight sum) {
  return fused(bits<Eight>(pair & 0xffff0000u), high, fused(bits<Eight>(pair << 16), low, sum));
}

inline void put_sum(float *d, Eight sum) {
  const Eight nan = made(NAN) - Eight{}, x = sum == sum ? sum : nan;
  std::memcpy(d, &x, sizeof x);
}

// more: number of words of two bf16; the sum before and after; then each word, and the factors of its low and its high
// half.
void dot(Warp &w, const In *in) {
  const uint32_t *more = &w.program->more[in->more], words = more[0];
  const float *before = w.reg<float>(more[1]);
  Eight sum[4] = {line(before), line(before + 8), line(before + 16), line(before + 24)};
  for (uint32_t k = 0; k < words; ++k) {
    const uint32_t *pairs = w.reg<uint32_t>(more[3 + 3 * k]);
    const float *low = w.reg<float>(more[4 + 3 * k]), *high = w.reg<float>(more[5 + 3 * k]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      sum[i] = with_products(bits<Words>(line(pairs + 8 * i)), line(low + 8 * i), line(high + 8 * i), sum[i]);
  }
  float *d = w.reg<float>(more[2]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) put_sum(d + 8 * i, sum[i]);
  in += 4 * words;
  return in->run[0](w, in);
}

// Columns of a row-major matrix of eight rows and N columns, column k to to[k * apart]: even elements make the even
// columns, odd elements the odd ones, recursively.
template <int N> inline void columns(const Words *from, Words *to, int apart = 1) {
  if constexpr (N == 1) {
    to[0] = from[0];
  } else {
    Words even[N / 2], odd[N / 2];
#pragma GCC unroll 4
    for (int i = 0; i < N / 2; ++i) {
      even[i] = __builtin_shuffle(from[2 * i], from[2 * i + 1], Words{0, 2, 4, 6, 8, 10, 12, 14});
      odd[i] = __builtin_shuffle(from[2 * i], from[2 * i + 1], Words{1, 3, 5, 7, 9, 11, 13, 15});
    }
    columns<N / 2>(even, to, 2 * apart);
    columns<N / 2>(odd, to + apart, 2 * apart);
  }
}
template <int N> inline void read_columns(const uint8_t *from, Words *to) {
  Words rows[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) rows[i] = bits<Words>(line(from + sizeof(Words) * i));
  columns<N>(rows, to);
}

// A load of N words of two bf16, N / 2 loads of the factors, and their dot product, if the words of all lanes are
// contiguous in memory, and so are the factors; otherwise each row is executed by itself.
template <int N> void loaded_dot(Warp &w, const In *in) {
  const In *factors = in + 1, *dot = factors + N / 2;
  const Lanes words_at = all_places(w, in, 4 * N, reads), factors_at = all_places(w, factors, 8 * N, reads);
  if (words_at.spacing != in_a_row || factors_at.spacing != in_a_row)
    return Load<uint32_t, uint32_t, N>::template run<false>(w, in);
  const uint8_t *words = first_place(w, in, words_at), *numbers = first_place(w, factors, factors_at);
  fetch_next(in, words, warp_size * 4 * N);
  const float *before = w.reg<float>(dot[1].c);
  float *d = w.reg<float>(dot[4 * N - 1].d);
#pragma GCC unroll 4
  for (int lane = 0; lane < warp_size; lane += 8) {
    Words pair[N], factor[2 * N];
    read_columns<N>(words + 4 * N * lane, pair);
    read_columns<2 * N>(numbers + 8 * N * lane, factor);
    Eight sum = line(before + lane);
#pragma GCC unroll 4
    for (int k = 0; k < N; ++k)
      sum = with_products(pair[k], bits<Eight>(factor[2 * k]), bits<Eight>(factor[2 * k + 1]), sum);
    put_sum(d + lane, sum);
  }
  in = dot + 4 * N;
  return in->run[0](w, in);
}

// Three rows. more: d, e, a, b, n of d = e + ((a + b) << n).
void indexed(Warp &w, const In *in) {
  const uint32_t *more = &w.program->more[in->more], n = more[4];
  uint64_t *d = w.reg<uint64_t>(more[0]);
  const uint64_t *e = w.reg<uint64_t>(more[1]), *a = w.reg<uint64_t>(more[2]), *b = w.reg<uint64_t>(more[3]);
  LANES d[i] = e[i] + ((a[i] + b[i]) << n);
  in += 3;
  return in->run[0](w, in);
}

// Two rows, d = a + shfl.bfly(a), all lanes in one segment, with the same b: no lane is out of range.
void shuffled_sum(Warp &w, const In *in) {
  if (w.mask != all_lanes) return in->inside(w, in);
  const int by = *w.reg<int>(in->b) & 31;
  alignas(64) int from[warp_size];
  alignas(64) float other[warp_size];
  LANES from[i] = i ^ by;
  permute(w.reg<uint32_t>(in->a), from, reinterpret_cast<uint32_t *>(other));
  const float *a = w.reg<float>(in->a);
  each<false, float>(w, in[1].d, [&](int i) { return made(a[i] + other[i]); });
  in += 2;
  return in->run[0](w, in);
}

class Fuser {
public:
  Fuser(Program &program, const Ops &ops) : program_(program), ops_(ops) {
    for (const In &in : program.code)
      for (const uint32_t at : {in.d, in.a, in.b, in.c}) ++named_[at];
    for (const uint32_t at : program.more) ++named_[at];
    for (const Filled &one : program.filled)
      if (one.kind == number) numbers_[one.at] = one.value;
  }

  void fuse() {
    for (size_t i = 0; i < program_.code.size(); ++i)
      if (!fuse_dot(i) && !fuse_loaded_dot(i, 2) && !fuse_loaded_dot(i, 4)) fuse_index(i), fuse_sum(i);
  }

private:
  // Row i, if it is this operation.
  const In *row(size_t i, const char *name) const {
    if (i >= program_.code.size() || program_.code[i].run[0] != ops_.at(name).plain) return nullptr;
    return &program_.code[i];
  }
  // Row i is no target of a jump.
  bool inside(size_t i) const { return program_.code[i].run[1] == program_.code[i].inside; }
  bool is(uint32_t at, uint64_t value) const {
    const auto found = numbers_.find(at);
    return found != numbers_.end() && found->second == value;
  }
  // The value is made by one row and read by one other.
  bool passes(uint32_t at) const { return named_.at(at) == 2; }
  bool unread(uint32_t at) const { return named_.at(at) == 1; }

  // Makes a whole warp execute row i by `function`, with its operands in Program::more, where row i has none.
  void set(size_t i, Fn function, const std::vector<uint32_t> &more) {
    program_.code[i].run[0] = function;
    program_.code[i].more = uint32_t(program_.more.size());
    program_.more.insert(program_.more.end(), more.begin(), more.end());
  }

  // Operands of the dot product that begins at this row, as `dot` reads them; without words if there is none.
  std::vector<uint32_t> dot_at(size_t first) const {
    std::vector<uint32_t> more = {0, 0, 0};
    for (size_t i = first;; i += 4, ++more[0]) {
      const In *low = row(i, "shl.b32"), *x = row(i + 1, "fma.ftz.f32"), *high = row(i + 2, "and.b32"),
               *y = row(i + 3, "fma.ftz.f32");
      const bool fits = low && x && high && y && is(low->b, 16) && is(high->b, 0xffff0000) && low->a == high->a &&
                        x->a == low->d && y->a == high->d && y->c == x->d && passes(low->d) && passes(high->d) &&
                        passes(x->d) && (i == first || (x->c == more[2] && passes(x->c) && inside(i))) &&
                        inside(i + 1) && inside(i + 2) && inside(i + 3);
      if (!fits) return more;
      if (i == first) more[1] = x->c;
      more[2] = y->d;
      more.insert(more.end(), {low->a, x->b, y->b});
    }
  }

  bool fuse_dot(size_t i) {
    const std::vector<uint32_t> more = dot_at(i);
    if (more[0]) set(i, dot, more);
    return more[0];
  }

  // A load of n words, loads of their 2 n factors, and the dot product, which alone reads them.
  bool fuse_loaded_dot(size_t begin, uint32_t n) {
    size_t i = begin;
    const In *words = row(i, n == 2 ? "ld.v2.u32.b32" : "ld.v4.u32.b32"), *first = row(i + 1, "ld.v4.u32.b32");
    if (!words || !first) return false;
    std::vector<uint32_t> factors;
    for (uint32_t k = 0; k < n / 2; ++k) {
      const In *load = row(++i, "ld.v4.u32.b32");
      if (!load || !inside(i) || load->a != first->a || load->flags != first->flags || load->imm != first->imm + 16 * k)
        return false;
      for (const uint32_t at : loaded(load, 4)) factors.push_back(at);
    }
    const std::vector<uint32_t> more = dot_at(++i), pairs = loaded(words, n);
    bool fits = more[0] == n && inside(i);
    for (uint32_t k = 0; fits && k < n; ++k)
      fits = more[3 + 3 * k] == pairs[k] && named_.at(pairs[k]) == 3 && more[4 + 3 * k] == factors[2 * k] &&
             more[5 + 3 * k] == factors[2 * k + 1] && passes(factors[2 * k]) && passes(factors[2 * k + 1]);
    if (fits) program_.code[begin].run[0] = n == 2 ? loaded_dot<2> : loaded_dot<4>;
    return fits;
  }
  // Registers of a load of n.
  std::vector<uint32_t> loaded(const In *in, uint32_t n) const {
    std::vector<uint32_t> all = {in->d};
    all.insert(all.end(), &program_.more[in->more], &program_.more[in->more] + n - 1);
    return all;
  }

  void fuse_index(size_t i) {
    const In *sum = row(i, "add.b64"), *shift = row(i + 1, "shl.b64"), *all = row(i + 2, "add.b64");
    if (!sum || !shift || !all || !inside(i + 1) || !inside(i + 2)) return;
    const auto n = numbers_.find(shift->b);
    if (n == numbers_.end() || n->second > 63 || shift->a != sum->d || all->b != shift->d || !passes(sum->d) ||
        !passes(shift->d))
      return;
    set(i, indexed, {all->d, all->a, sum->a, sum->b, uint32_t(n->second)});
  }

  void fuse_sum(size_t i) {
    const In *other = row(i, "shfl.bfly.b32"), *sum = row(i + 1, "add.ftz.f32");
    if (!other || !sum || !inside(i + 1) || !numbers_.contains(other->b) || !is(other->c, 31)) return;
    const uint32_t *more = &program_.more[other->more]; // the predicate and the member mask
    if ((more[0] && !unread(more[0])) || !is(more[1], all_lanes) || !passes(other->d)) return;
    if (sum->a == other->a && sum->b == other->d) program_.code[i].run[0] = shuffled_sum;
  }

  Program &program_;
  const Ops &ops_;
  std::unordered_map<uint32_t, uint32_t> named_;   // uses of a place
  std::unordered_map<uint32_t, uint64_t> numbers_; // values of places that hold constants
};

} // namespace

void fuse(Program &program, const Ops &ops) { Fuser(program, ops).fuse(); }

} // namespace ptx
