// Lanes that have gone around an aligned barrier: they have been at a postdominator of the barrier, and ended without
// it. A lane that has returned early has not been there.
#include "lanes.hpp"

#include <functional>

namespace ptx {
namespace {

struct Part { // a basic block
  size_t begin, end;
  std::vector<size_t> next;        // successors
  std::vector<uint8_t> after = {}; // by part: 1 for this one and its postdominators
};

std::vector<Part> parts_of(const Program &program, const std::vector<std::string> &names) {
  const auto &code = program.code;
  std::vector<bool> heads(code.size() + 1);
  for (size_t i = 0; i < code.size(); ++i) {
    const bool jumps = names[i].starts_with("bra");
    if (jumps) heads[size_t(code[i].imm)] = true;
    if (jumps || names[i] == "exit") heads[i + 1] = true;
  }
  std::vector<Part> parts;
  std::vector<size_t> part_at(code.size() + 1);
  for (size_t i = 0, begin = 0; i < code.size(); ++i) {
    part_at[i] = parts.size();
    if (i + 1 == code.size() || heads[i + 1]) parts.push_back({begin, i + 1, {}}), begin = i + 1;
  }
  for (Part &part : parts) {
    const size_t last = part.end - 1;
    if (names[last] != "exit" && names[last] != "bra" && !names[last].starts_with("trap"))
      part.next.push_back(part_at[last + 1]);
    if (names[last].starts_with("bra")) part.next.push_back(part_at[size_t(code[last].imm)]);
  }
  return parts;
}

// Fills in `after` of each part; it is all parts where no path leads to the end.
void find_after(std::vector<Part> &parts, const std::vector<std::string> &names) {
  for (Part &part : parts) part.after.assign(parts.size(), 1);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = parts.size(); i-- > 0;) {
      std::vector<uint8_t> common(parts.size(), names[parts[i].end - 1] != "exit");
      for (const size_t next : parts[i].next)
        std::ranges::transform(common, parts[next].after, common.begin(), std::bit_and<uint8_t>());
      common[i] = 1;
      if (common != parts[i].after) parts[i].after = std::move(common), changed = true;
    }
  }
}

void note(Warp &w, const In *in) {
  const auto &places = w.program->beyond.places;
  if (w.beyond.empty()) w.beyond.resize(places.size());
  w.beyond[size_t(std::ranges::lower_bound(places, in) - places.begin())] |= w.mask;
}

void at_beyond(Warp &w, const In *in) {
  note(w, in);
  return at_label(w, in);
}

} // namespace

void find_beyond(Program &program, const std::vector<std::string> &names) {
  const auto aligned = [](const std::string &name) { return name.starts_with("bar.sync") || name == "bar.arrive"; };
  if (std::ranges::none_of(names, aligned)) return;
  std::vector<Part> parts = parts_of(program, names);
  find_after(parts, names);
  auto &[of, places] = program.beyond;
  for (const Part &part : parts)
    for (size_t i = part.begin; i < part.end; ++i) {
      if (!aligned(names[i])) continue;
      const Part *last = nullptr; // the postdominator with the fewest of its own
      const auto parts_after = [](const Part &one) { return std::ranges::count(one.after, 1); };
      for (const Part &other : parts)
        if (&other != &part && part.after[size_t(&other - parts.data())] && names[other.begin] != "exit" &&
            (!last || parts_after(other) < parts_after(*last)))
          last = &other;
      if (last) of[&program.code[i]] = &program.code[last->begin], places.push_back(&program.code[last->begin]);
    }
  std::ranges::sort(places);
  places.erase(std::ranges::unique(places).begin(), places.end());
  for (const In *in : places) program.code[size_t(in - program.code.data())].run[1] = at_beyond;
}

void begin_apart(Warp &w, const In *in) {
  if (in->run[1] == at_beyond) note(w, in);
}

bool gone_around(const Warp &w, const In *in) {
  const auto &[of, places] = w.program->beyond;
  const auto found = of.find(in);
  if (w.beyond.empty() || found == of.end()) return false;
  return w.beyond[size_t(std::ranges::lower_bound(places, found->second) - places.begin())] & ~w.live;
}

} // namespace ptx
