// Fused rows: sequences executed as one for a whole warp; intermediate values stay in registers of the CPU. All rows
// remain, for groups of some lanes. Functions of sequences are beside those of their rows, and in products.cpp.
#include "lanes.hpp"

namespace ptx {
namespace {

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

  // A whole warp executes row i as this operation, which reads the operands of all its rows.
  void set(size_t i, const char *name) { program_.code[i].run[0] = ops_.at(name).plain; }
  // The same for an operation with operands of its own in Program::more, where row i has none.
  void set(size_t i, const char *name, const std::vector<uint32_t> &more) {
    set(i, name);
    program_.code[i].more = uint32_t(program_.more.size());
    program_.more.insert(program_.more.end(), more.begin(), more.end());
  }

  // Operands of the dot product that begins at this row, as products.cpp reads them; without words if there is none.
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
    if (more[0]) set(i, "dot", more);
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
    if (fits) set(begin, n == 2 ? "ld.v2 and dot" : "ld.v4 and dot");
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
    set(i, "indexed", {all->d, all->a, sum->a, sum->b, uint32_t(n->second)});
  }

  void fuse_sum(size_t i) {
    const In *other = row(i, "shfl.bfly.b32"), *sum = row(i + 1, "add.ftz.f32");
    if (!other || !sum || !inside(i + 1) || !numbers_.contains(other->b) || !is(other->c, 31)) return;
    const uint32_t *more = &program_.more[other->more]; // the predicate and the member mask
    if ((more[0] && !unread(more[0])) || !is(more[1], all_lanes) || !passes(other->d)) return;
    if (sum->a == other->a && sum->b == other->d) set(i, "shfl.bfly.b32 and add.ftz.f32");
  }

  Program &program_;
  const Ops &ops_;
  std::unordered_map<uint32_t, uint32_t> named_;   // uses of a place
  std::unordered_map<uint32_t, uint64_t> numbers_; // values of places that hold constants
};

} // namespace

void fuse(Program &program, const Ops &ops) { Fuser(program, ops).fuse(); }

} // namespace ptx
