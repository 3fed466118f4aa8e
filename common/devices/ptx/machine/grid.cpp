// The scheduler: turns of warps, sleeping groups, and detection of deadlocks.
//
// The next warp is drawn by seed among all that can run, those of one block seldom. A warp runs until all its groups
// wait, its turn ends at a jump, or another one overtakes it after an atomic or a strong store. A group that polls an
// unchanged word a second time sleeps until something is written to a line that it has polled; one in a launch first
// polls on while nobody else runs, so that a wait that ends by itself shows. When no warp can run and no copy is in
// flight, all sleepers poll once more; after `patience` such rounds without a write, or with a patience of 0 when all
// registers are as after an earlier one, the launch is deadlocked.
#include "lanes.hpp"
#include "races.hpp"

#include <chrono>

namespace ptx {

constexpr int quantum = 4096, turn_of_restless = 64;
constexpr uint32_t never_written = 0xffa5ffa5; // NaN in fp32, and twice in bf16

namespace {

constexpr const char *waits[] = {"can go on", "waits for lanes", "waits at a barrier of the block", "polls"}; // by Wait

uint64_t key_of(const void *at, int lane) { return reinterpret_cast<uint64_t>(at) << 5 | uint64_t(lane); }

// The value of a special register.
uint64_t special(const Warp &w, const Filled &one, const Launch &l, int lane) {
  const size_t axis = one.value % 3;
  const auto along = [&](uint32_t index, const uint32_t *sizes) { // the axis
    return (axis == 0 ? index : axis == 1 ? index / sizes[0] : index / sizes[0] / sizes[1]) % sizes[axis];
  };
  const uint32_t eq = 1u << lane, lt = eq - 1, masks[] = {eq, lt, eq | lt, ~(eq | lt), ~lt};
  const uint64_t by_kind[] = {along(w.thread(lane), l.block),
                              along(w.block->index, l.grid),
                              l.block[axis],
                              l.grid[axis],
                              uint64_t(lane),
                              w.index,
                              masks[one.value % 5],
                              l.dynamic_shared,
                              uint32_t(l.workspace >> one.value % 64),
                              reinterpret_cast<uint64_t>(l.parameters) + one.value,
                              one.value ? w.grid->blocks.size() : w.block->index};
  return by_kind[one.kind - tid];
}

// Registers with a value before a warp begins: constants, parameters and special registers.
void fill(Warp &w, const Filled &one, const Launch &l) {
  uint64_t value = one.value;
  if (one.kind == parameter) value = 0, std::memcpy(&value, l.parameters + one.value, one.bytes);
  const auto set = [&]<class T>(T *d) {
    for (int lane = 0; lane < warp_size; ++lane) d[lane] = T(one.kind <= parameter ? value : special(w, one, l, lane));
  };
  one.bytes == 8   ? set(w.reg<uint64_t>(one.at))
  : one.bytes == 4 ? set(w.reg<uint32_t>(one.at))
  : one.bytes == 2 ? set(w.reg<uint16_t>(one.at))
                   : set(w.reg<uint8_t>(one.at));
}

// Hash of all registers and of the places of the groups, in any order.
uint64_t state(const Grid &grid) {
  uint64_t all = 0;
  for (const auto &block : grid.blocks)
    for (const Warp &w : block->warps) {
      all = 31 * all + std::hash<std::string_view>{}({reinterpret_cast<const char *>(w.file), w.program->file_bytes});
      for (const Group &g : w.groups) all += reinterpret_cast<uint64_t>(g.ip) * (2 * g.mask + uint64_t(1));
    }
  return all;
}

} // namespace

Grid::Grid(const Program &p, const Launch &l) : program(p), launch(l), random{l.seed} {
  const uint32_t count = l.grid[0] * l.grid[1] * l.grid[2], threads = l.block[0] * l.block[1] * l.block[2];
  const uint32_t warps = (threads + warp_size - 1) / warp_size;
  // Registers, kept for the thread's next grid: getting and returning pages took as long as executing.
  static thread_local std::vector<uint8_t> files;
  files.resize(std::max(files.size(), size_t(count) * warps * p.file_bytes + 64));
  locals.resize(size_t(count) * warps * warp_size * p.local_bytes + 64, 0xff); // NaN
  uint8_t *file = files.data() + (64 - reinterpret_cast<uintptr_t>(files.data()) % 64) % 64, *own = locals.data();
  Random apart{~l.seed}; // not `random`, so that the turns before stay as they are
  calm_sleeps = uint32_t(apart() % (1u << apart() % 12));
  if (l.races) races = std::make_unique<Races>(*this);
  for (uint32_t b = 0; b < count; ++b) {
    Block &block = *blocks.emplace_back(std::make_unique<Block>());
    block.index = b, block.grid = this;
    block.memory.resize(p.shared_bytes + l.dynamic_shared);
    // NaNs, half of them odd as integers, so that a counter that nobody has set differs between threads.
    for (size_t i = 0; i < block.memory.size(); ++i)
      block.memory[i] = i % 2 ? 0xff : uint8_t(0x81 + (7 * (i / 2) + b) % 61);
    block.warps.resize(warps);
    for (uint32_t i = 0; i < warps; ++i) {
      Warp &w = block.warps[i];
      const uint32_t left = threads - i * warp_size;
      w.file = file, w.local = own, file += p.file_bytes, own += warp_size * p.local_bytes;
      w.index = i, w.block = &block, w.grid = this, w.program = &p, w.current = -1;
      w.live = left >= warp_size ? all_lanes : (1u << left) - 1;
      w.queued = w.asleep = false, w.looked_at = 0, w.copied = 0;
      std::fill_n(w.committed, warp_size, 0);
      w.groups = {{w.live, p.code.data(), Wait::ready}};
      std::fill_n(w.reg<uint32_t>(0), p.file_bytes / 4, never_written);
      w.mask = all_lanes;
      for (const Filled &one : p.filled) fill(w, one, l);
      ready(w);
      ++alive;
    }
  }
}

Grid::~Grid() = default;

void Grid::ready(Warp &w) {
  if (w.queued) return;
  w.queued = true;
  queue.push_back(&w);
}

void Grid::look(Warp &w, int lane, const void *at) {
  if (w.looked.size() < 4096) w.looked.push_back(key_of(at, lane));
}

bool Grid::would_sleep(Warp &w, int lane, const void *at) {
  if (w.looked_at != progress) w.looked.clear(), w.looked_at = progress;
  return std::ranges::find(w.looked, key_of(at, lane)) != w.looked.end() && !polls_on(w);
}

bool Grid::polls_on(Warp &w) {
  if (!launch.strict || launch.executed || !restless_waits) return false;
  if (!restless && calm_sleeps-- == 0) restless = &w;
  if (&w != restless) return false;
  --restless_waits, w.fuel = turn_of_restless;
  return true;
}

void Grid::sleep(Warp &w, const In *in) {
  if (w.looked.empty() || w.looked_at != progress) return park(w, in, Wait::ready), void(w.fuel = -1);
  park(w, in, Wait::poll);
  for (const uint64_t key : w.looked) {
    auto &here = lines[(key >> 10) % looked_lines];
    if (std::find(here.begin(), here.end(), &w) == here.end()) here.push_back(&w);
  }
  if (!w.asleep) w.asleep = true, ++sleepers;
}

void Grid::wake(Warp &w) {
  if (!w.asleep) return;
  w.asleep = false, --sleepers;
  w.looked.clear();
  for (Group &g : w.groups)
    if (g.wait == Wait::poll) g.wait = Wait::ready;
  ready(w);
}

void Grid::wake_those_who_look(uintptr_t line) {
  auto &here = lines[line % looked_lines];
  for (Warp *w : here) wake(*w);
  here.clear();
}

// Runs the warp until all its groups wait, or its turn is over.
void Grid::step(Warp &w) {
  w.fuel = launch.strict ? int(below(64)) : quantum;
  while (status == finished && w.fuel >= 0) {
    int chosen = -1, count = 0;
    for (size_t i = 0; i < w.groups.size(); ++i) {
      Group &g = w.groups[i];
      if (g.wait != Wait::ready) continue;
      for (size_t j = w.groups.size() - 1; j > i; --j)
        if (w.groups[j].wait == Wait::ready && w.groups[j].ip == g.ip) {
          g.mask |= w.groups[j].mask;
          w.groups.erase(w.groups.begin() + std::ptrdiff_t(j));
        }
      ++count;
      if (chosen < 0 || w.groups[i].ip < w.groups[size_t(chosen)].ip) chosen = int(i);
    }
    if (count == 0) break;
    if (launch.strict && count > 1 && below(2)) { // any of them
      for (int skip = int(below(uint32_t(count))), i = 0; i < int(w.groups.size()); ++i)
        if (w.groups[size_t(i)].wait == Wait::ready && skip-- == 0) chosen = i;
    }
    w.current = chosen;
    const Group g = w.groups[size_t(chosen)];
    w.mask = g.mask;
    if (w.mask != w.live) begin_apart(w, g.ip);
    (w.mask == w.live ? g.ip->run[0] : g.ip->inside)(w, g.ip);
  }
  bool can = false, stuck = !w.groups.empty();
  for (const Group &g : w.groups) can |= g.wait == Wait::ready, stuck &= g.wait == Wait::lanes;
  if (stuck && status == finished) {
    const Group &a = w.groups.front(), &b = w.groups[w.groups.size() > 1];
    const std::string other = "{pc " + std::to_string(b.ip - program.code.data()) + "}";
    fail(faulted, w, a.ip, "lanes of a warp wait for each other at two places, the other is " + other, a.mask);
  }
  if (can) ready(w);
}

void Grid::land_due(bool any) {
  for (auto &block : blocks)
    for (size_t i = block->bulks.size(); i-- > 0;)
      if (block->bulks[i].due <= turn || any) land(*block, i), any = false;
}

std::string Grid::who_waits() const {
  std::map<std::pair<Wait, const In *>, std::vector<std::pair<uint32_t, uint32_t>>, std::greater<>> places;
  for (const auto &block : blocks)
    for (const Warp &w : block->warps)
      for (const Group &g : w.groups)
        places[{g.wait, g.ip}].push_back({block->index, w.thread(std::countr_zero(g.mask))});
  std::string report;
  for (const auto &[what, who] : places) {
    const auto pc = what.second - program.code.data() - (what.first == Wait::barrier); // where a group goes on
    report += std::to_string(who.size()) + " warp" + (who.size() > 1 ? "s, the first in block " : " in block ") +
              std::to_string(who[0].first) + " with thread " + std::to_string(who[0].second) + ", " +
              waits[size_t(what.first)] + " {pc " + std::to_string(pc) + "}\n";
  }
  return report;
}

Status Grid::run() {
  all_turns();
  if (status == finished) report_ = notes_;
  if (races && !races->found().empty()) report_ = races->found() + (status == finished ? "" : report_), status = raced;
  std::snprintf(launch.report, launch.report_size, "%s", report_.c_str());
  earlier += turn;
  return status;
}

void Grid::end(Status why, const std::string &report) {
  if (status == finished) status = why, report_ = report;
}

void Grid::all_turns() {
  using Clock = std::chrono::steady_clock;
  const auto latest = Clock::now() + std::chrono::duration<double>(launch.timeout);
  const uint32_t slow = below(uint32_t(2 * blocks.size())); // block whose turns are rare; for half of the seeds none
  uint64_t seen = 0, next_check = 0;
  uint64_t before = 0;        // state() of an earlier round
  uint64_t last = UINT64_MAX; // last turn after a race, whose wrong values may keep the launch from ending
  int idle = 0;
  while (alive && status == finished) {
    if (queue.empty()) {
      if (in_flight) {
        land_due(true);
        continue;
      }
      idle = progress == seen ? idle + 1 : 0;
      seen = progress;
      const uint64_t now = launch.patience ? 0 : state(*this);
      const bool over = launch.patience ? idle > int(launch.patience) : idle && now == before;
      if (!sleepers || over) return end(deadlocked, who_waits());
      if ((idle & (idle - 1)) == 0) before = now; // the state of round 0, 1, 2, 4, ...: finds any cycle
      for (auto &block : blocks)
        for (Warp &w : block->warps) wake(w);
      continue;
    }
    size_t at = below(uint32_t(queue.size()));
    if (launch.strict && queue[at]->block->index == slow && below(16)) at = below(uint32_t(queue.size()));
    Warp &w = *queue[at];
    queue[at] = queue.back();
    queue.pop_back();
    w.queued = false;
    step(w);
    ++turn;
    if (in_flight) land_due(false);
    if (turn > next_check) {
      next_check = turn + 256;
      if (races && last == UINT64_MAX && !races->found().empty()) last = 4 * turn + 4096;
      if (turn > last) return;
      if (Clock::now() > latest) return end(timed_out, who_waits());
    }
  }
}

std::string Grid::place(const Warp &w, const In *in, uint32_t mask) const {
  const auto pc = in - program.code.data();
  return "{pc " + std::to_string(pc) + "}, block " + std::to_string(w.block->index) + ", thread " +
         std::to_string(w.thread(mask ? std::countr_zero(mask) : 0));
}

void Grid::fail(Status why, const Warp &w, const In *in, const std::string &text, uint32_t mask) {
  end(why, (text.empty() ? "" : text + ": ") + place(w, in, mask));
}

void Grid::note(const Warp &w, const In *in, const std::string &text, uint32_t mask) { // once for an instruction
  const std::string begin = text + ": {pc " + std::to_string(in - program.code.data()) + "}";
  if (notes_.find(begin) == std::string::npos) notes_ += text + ": " + place(w, in, mask) + "\n";
}

} // namespace ptx
