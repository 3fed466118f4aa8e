// Counts of executed instructions: a function in front of each instruction's own adds the active lanes.
#include "places.hpp"

namespace ptx {
namespace {

// Adds `sign` times the group's lanes, or bytes, to the instruction's row. Column 0 is for no buffer, column 1 + k for
// buffer k, and the last one for bytes of copies with an L2 policy to keep them. Of a conditional branch, column 1 is
// for lanes that jump.
void count(const Warp &w, const In *in, uint64_t sign) {
  const Launch &launch = w.grid->launch;
  const auto at = size_t(in - w.program->code.data());
  const Moves moves = w.program->counted[at].moves;
  uint64_t *row = launch.executed + at * (launch.buffer_count + 2);
  const uint32_t *more = w.program->more.data() + in->more; // may be its end
  if (moves == Moves::nothing) return void(row[0] += sign * uint64_t(std::popcount(w.mask)));
  if (moves == Moves::jump_if || moves == Moves::jump_unless) {
    const uint32_t p = *w.reg<uint32_t>(in->a), jumps = (moves == Moves::jump_if ? p : ~p) & w.mask;
    row[0] += sign * uint64_t(std::popcount(w.mask & ~jumps));
    return void(row[1] += sign * uint64_t(std::popcount(jumps)));
  }
  for (const int lane : Each{w.mask}) {
    uint64_t address, amount = 1;
    if (moves == Moves::word) {
      address = address_of(w, in->a, Flags{in->flags}.wide(), lane) + uint64_t(in->imm);
    } else {
      address = w.reg<uint64_t>(in->b)[lane] + uint64_t(int32_t(more[moves == Moves::bulk ? 2 : 0]));
      const uint32_t read = moves == Moves::bulk ? more[0] : more[2]; // register with the number of bytes, or 0
      amount = read ? w.reg<uint32_t>(read)[lane] : more[1];
    }
    const Buffer *buffer = find(*w.grid, address, 1);
    row[buffer ? 1 + (buffer - launch.buffers) : 0] += sign * amount;
    if (moves != Moves::word && more[3] && w.reg<uint64_t>(more[3])[lane])
      row[launch.buffer_count + 1] += sign * amount;
  }
}

template <int Some> void counted(Warp &w, const In *in) {
  count(w, in, 1);
  return w.program->counted[size_t(in - w.program->code.data())].run[Some](w, in);
}

Moves moves_of(const std::string &name) {
  if (name == "cp.async.bulk" || name == "cp.async.bulk.prefetch") return Moves::bulk;
  if (name == "cp.async") return Moves::copy;
  if (name == "bra.if") return Moves::jump_if;
  if (name == "bra.unless") return Moves::jump_unless;
  for (const char *with : {"ld.", "st.", "atom.", "red.", "prefetch", "wmma.load", "wmma.store"})
    if (name.starts_with(with)) return Moves::word;
  return Moves::nothing;
}

} // namespace

void uncount(const Warp &w, const In *in) {
  if (w.grid->launch.executed) count(w, in, uint64_t(-1));
}

void count_all(Program &program, const std::vector<std::string> &names) {
  for (size_t i = 0; i < program.code.size(); ++i) {
    In &in = program.code[i];
    program.counted.push_back({{in.run[0], in.inside}, moves_of(names[i])});
    if (in.run[1] == in.inside) in.run[1] = counted<1>; // else it is at_label, which calls `inside`
    in.run[0] = counted<0>, in.inside = counted<1>;
  }
}

} // namespace ptx
