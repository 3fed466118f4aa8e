// Block scheduler of one launch: choice of blocks to run, deadlock detection, and the launch itself.
#include "runtime.hpp"

#include <chrono>
#include <set>
#include <thread>

namespace host {

Grid::Grid(const Launch &launch)
    : launch_(launch), states_(launch.blocks, State::ready), polled_(launch.blocks),
      scheduled_(new std::condition_variable[launch.blocks]), random_(static_cast<uint32_t>(launch.seed)) {
  for (int b = 0; b < launch.blocks; ++b) blocks_.push_back(std::make_unique<Block>(*this, b));
}

// Gives free workers to runnable blocks, chosen by the seed. When none is runnable and none runs, the launch is
// deadlocked: it fails with a report. The caller holds the mutex.
void Grid::dispatch() {
  while (running_ < launch_.workers) {
    std::vector<int> runnable;
    for (int b = 0; b < launch_.blocks; ++b) {
      const bool polls = states_[b] == State::idle && polled_[b] != progress_ && polled_[b] != never;
      if (polls || states_[b] == State::ready) runnable.push_back(b);
    }
    if (runnable.empty()) break;
    int b = runnable[random_() % runnable.size()];
    // One of four, by the oldest poll: blocks that already wait at the next barrier have polled since.
    for (int draw = 1; draw < 4; ++draw) {
      const int other = runnable[random_() % runnable.size()];
      if (polled_[other] < polled_[b]) b = other;
    }
    if (states_[b] == State::idle) --idle_;
    states_[b] = State::running;
    ++running_;
    scheduled_[b].notify_one();
  }
  if (running_ > 0 || failed() || ended_ == launch_.blocks) return;
  std::string report;
  for (int b = 0; b < launch_.blocks; ++b)
    if (states_[b] != State::ended) blocks_[b]->describe(report);
  if (ended_ > 0) report += std::to_string(ended_) + " of " + std::to_string(launch_.blocks) + " blocks ended\n";
  fail_locked(deadlocked, report);
}

void Grid::sleep(int block, std::unique_lock<std::mutex> &lock) {
  dispatch();
  scheduled_[block].wait(lock, [&] { return states_[block] == State::running || failed(); });
}

bool Grid::idle(int block, uint64_t polled) {
  std::unique_lock<std::mutex> lock(mutex_);
  states_[block] = State::idle;
  polled_[block] = polled;
  ++idle_;
  --running_;
  sleep(block, lock);
  return !failed();
}

void Grid::progressed(int block) {
  ++progress_;
  if (idle_ == 0 && launch_.workers >= launch_.blocks) return;
  std::unique_lock<std::mutex> lock(mutex_);
  // With probability 1/2 another block gets this worker, so that the last block to arrive does not always leave first.
  if (random_() % 2 == 0) {
    states_[block] = State::ready;
    --running_;
    sleep(block, lock);
  } else {
    dispatch();
  }
}

void Grid::published(int block) {
  ++progress_;
  std::unique_lock<std::mutex> lock(mutex_);
  if (random_() % 32 == 0) {
    states_[block] = State::ready;
    --running_;
    sleep(block, lock);
  } else if (running_ < launch_.workers) {
    dispatch();
  }
}

void Grid::fail_locked(Status status, const std::string &report) {
  if (failed()) return;
  write_report(report);
  status_ = status;
  for (int b = 0; b < launch_.blocks; ++b) scheduled_[b].notify_one();
}

void Grid::fail(Status status, const std::string &report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_locked(status, report);
}

void Grid::body(int b) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    scheduled_[b].wait(lock, [&] { return states_[b] == State::running || failed(); });
  }
  if (!failed()) blocks_[b]->run();
  std::unique_lock<std::mutex> lock(mutex_);
  if (!failed() && !intact(blocks_[b]->memory()))
    fail_locked(corrupted, "block " + std::to_string(b) + " wrote outside its shared memory\n");
  states_[b] = State::ended;
  ++ended_;
  --running_;
  ++progress_; // blocks that wait for this one poll once more; if none can continue, `dispatch` reports the deadlock
  dispatch();
  if (ended_ == launch_.blocks) all_ended_.notify_one();
}

// The report of a launch that finished: a line for each two places that may be different in the source.
void Grid::report_suspicions() {
  std::set<std::string> lines;
  for (const auto &block : blocks_)
    for (const Suspicion &each : block->suspicions())
      lines.insert(std::string(each.who) + ": " + code_name("code", each.first - 1) + " " +
                   code_name("code", each.second - 1) + "\n");
  std::string report;
  for (const std::string &line : lines) report += line;
  write_report(report);
}

void Grid::write_report(const std::string &report) {
  const size_t length = std::min(report.size(), launch_.report_size - 1);
  memcpy(launch_.report, report.data(), length);
  launch_.report[length] = '\0';
}

Status Grid::run() {
  std::vector<std::thread> threads;
  for (int b = 0; b < launch_.blocks; ++b) threads.emplace_back([this, b] { body(b); });
  {
    std::unique_lock<std::mutex> lock(mutex_);
    dispatch();
    const auto limit = std::chrono::duration<double>(launch_.timeout);
    if (!all_ended_.wait_for(lock, limit, [&] { return ended_ == launch_.blocks; })) {
      std::string report;
      for (const bool running : {true, false}) // running blocks first: one of them has the endless loop
        for (int b = 0; b < launch_.blocks; ++b)
          if (states_[b] != State::ended && (states_[b] == State::running) == running) blocks_[b]->describe(report);
      fail_locked(timed_out, report);
      lock.unlock();
      for (auto &thread : threads) thread.detach(); // a thread in an endless loop cannot be stopped
      return timed_out;
    }
  }
  for (auto &thread : threads) thread.join();
  if (!failed()) report_suspicions();
  return static_cast<Status>(status_.load());
}

} // namespace host

// Runs the kernel once and returns a Status. On timed_out the grid is leaked, because its threads still use it.
extern "C" [[gnu::visibility("default")]] int lab_launch(const host::Launch *launch) {
  auto grid = std::make_unique<host::Grid>(*launch);
  host::catch_faults();
  const host::Status status = grid->run();
  if (status == host::timed_out)
    grid.release(); // its threads may still fault
  else
    host::leave_faults();
  return status;
}
