// Functions called by Python.
#include "lanes.hpp"
#include "races.hpp"

namespace ptx {

void add_integers(Ops &), add_floats(Ops &), add_conversions(Ops &), add_comparisons(Ops &), add_memory(Ops &);
void add_warp_wide(Ops &), add_matrices(Ops &), add_control(Ops &);
void add_barriers(Ops &), add_mbarriers(Ops &), add_copies(Ops &);

static const Ops &ops() {
  static const Ops all = [] {
    Ops made;
    for (const auto add : {add_integers, add_floats, add_conversions, add_comparisons, add_memory, add_warp_wide,
                           add_matrices, add_control, add_barriers, add_mbarriers, add_copies})
      add(made);
    return made;
  }();
  return all;
}

struct Coded { // an instruction as Python writes it
  uint32_t op, label, d, a, b, c;
  int64_t imm;
  uint32_t flags, more;
};

} // namespace ptx

using namespace ptx;

#pragma GCC visibility push(default)
extern "C" {

int ptx_op(const char *name) { // its number, or -1
  const auto found = ops().find(name);
  return found == ops().end() ? -1 : int(std::distance(ops().begin(), found));
}

Program *ptx_program(const Coded *coded, uint32_t count, const uint32_t *more, uint32_t more_count,
                     const Filled *filled, uint32_t filled_count, uint32_t file_bytes, uint32_t shared_bytes,
                     uint32_t local_bytes, uint32_t counts) {
  std::vector<std::string> names, by_number;
  for (const auto &[name, op] : ops()) by_number.push_back(name);
  auto *program = new Program;
  for (uint32_t i = 0; i < count; ++i) {
    const Coded &c = coded[i];
    names.push_back(by_number[c.op]);
    const Op op = ops().at(names.back());
    In &in = program->code.emplace_back(In{{op.plain, c.label ? at_label : op.masked}, op.masked});
    in.d = c.d, in.a = c.a, in.b = c.b, in.c = c.c, in.imm = c.imm, in.flags = c.flags | op.flags, in.more = c.more;
  }
  program->more.assign(more, more + more_count);
  program->filled.assign(filled, filled + filled_count);
  program->file_bytes = file_bytes, program->shared_bytes = shared_bytes, program->local_bytes = local_bytes;
  find_beyond(*program, names);
  counts ? count_all(*program, names) : fuse(*program, ops());
  return program;
}

void ptx_free(Program *program) { delete program; }

int ptx_run(const Program *program, const Launch *launch) {
  const uint32_t before = get_mode();
  set_mode(mode_of(nearest, true));
  const Status status = Grid(*program, *launch).run();
  set_mode(before);
  return status;
}

} // extern "C"
#pragma GCC visibility pop
