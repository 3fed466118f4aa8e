// Fused rows: sequences executed as one for a whole warp; intermediate values stay in registers of the CPU. All rows
// remain, for groups of some lanes.
#include "lanes.hpp"

namespace ptx {
namespace {

// Sum of products of bf16 and fp32, one after another. more: number of words of two bf16; the sum before and after;
// then each word, and the factors of its low and its high half.
void dot(Warp &w, const In *in) {
  using Words = uint32_t __attribute__((vector_size(32)));
  const uint32_t *more = &w.program->more[in->more], words = more[0];
  const float *before = w.reg<float>(more[1]);
  Eight sum[4] = {line(before), line(before + 8), line(before + 16), line(before + 24)};
  for (uint32_t k = 0; k < words; ++k) {
    const uint32_t *pairs = w.reg<uint32_t>(more[3 + 3 * k]);
    const float *low = w.reg<float>(more[4 + 3 * k]), *high = w.reg<float>(more[5 + 3 * k]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Words pair = bits<Words>(line(pairs + 8 * i));
      sum[i] = fused(bits<Eight>(pair << 16), line(low + 8 * i), sum[i]);
      sum[i] = fused(bits<Eight>(pair & 0xffff0000u), line(high + 8 * i), sum[i]);
    }
  }
  float *d = w.reg<float>(more[2]);
  const Eight nan = made(NAN) - Eight{};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Eight x = sum[i] == sum[i] ? sum[i] : nan;
    std::memcpy(d + 8 * i, &x, sizeof x);
  }
  in += 4 * words;
  return in->run[0](w, in);
}

// more: d, e, a, b, n of d = e + ((a + b) << n).
void indexed(Warp &w, const In *in) {
  const uint32_t *more = &w.program->more[in->more], n = more[4];
  uint64_t *d = w.reg<uint64_t>(more[0]);
  const uint64_t *e = w.reg<uint64_t>(more[1]), *a = w.reg<uint64_t>(more[2]), *b = w.reg<uint64_t>(more[3]);
  LANES d[i] = e[i] + ((a[i] + b[i]) << n);
  in += 3;
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
      if (!fuse_dot(i)) fuse_index(i), fuse_sum(i);
  }

private:
  // Row i, if it is this operation.
  const In *row(size_t i, const char *name) const {
    if (i >= program_.code.size() || program_.code[i].run[0] != ops_.at(name).plain) return nullptr;
    return &program_.code[i];
  }
  // Row i is no target of a jump.
  bool inside(size_t i) const { return program_.code[i].run[1] != at_label; }
  bool is(uint32_t at, uint64_t value) const {
    const auto found = numbers_.find(at);
    return found != numbers_.end() && found->second == value;
  }
  // The value is made by one row and read by one other.
  bool passes(uint32_t at) const { return named_.at(at) == 2; }
  bool unread(uint32_t at) const { return named_.at(at) == 1; }

  void set(size_t i, Fn run, const std::vector<uint32_t> &more) {
    program_.code[i].run[0] = run;
    program_.code[i].more = uint32_t(program_.more.size());
    program_.more.insert(program_.more.end(), more.begin(), more.end());
  }

  bool fuse_dot(size_t first) {
    std::vector<uint32_t> more = {0, 0, 0};
    for (size_t i = first;; i += 4, ++more[0]) {
      const In *low = row(i, "shl.b32"), *x = row(i + 1, "fma.ftz.f32"), *high = row(i + 2, "and.b32"),
               *y = row(i + 3, "fma.ftz.f32");
      const bool fits = low && x && high && y && is(low->b, 16) && is(high->b, 0xffff0000) && low->a == high->a &&
                        x->a == low->d && y->a == high->d && y->c == x->d && passes(low->d) && passes(high->d) &&
                        passes(x->d) && (i == first || (x->c == more[2] && passes(x->c) && inside(i))) &&
                        inside(i + 1) && inside(i + 2) && inside(i + 3);
      if (!fits) break;
      if (i == first) more[1] = x->c;
      more[2] = y->d;
      more.insert(more.end(), {low->a, x->b, y->b});
    }
    if (more[0]) set(first, dot, more);
    return more[0];
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
    if (sum->a == other->a && sum->b == other->d)
      program_.code[i].run[0] = ops_.at("shfl.bfly.b32 and add.ftz.f32").plain;
  }

  Program &program_;
  const Ops &ops_;
  std::unordered_map<uint32_t, uint32_t> named_;   // uses of a place
  std::unordered_map<uint32_t, uint64_t> numbers_; // values of places that hold constants
};

} // namespace

void fuse(Program &program, const Ops &ops) { Fuser(program, ops).fuse(); }

} // namespace ptx
