// The blocks of one launch: which of them run, when nobody can go on, and the launch itself.
#include "runtime.hpp"

#include <chrono>
#include <thread>

namespace host {

Grid::Grid(const Launch &launch)
    : launch_(launch), states_(launch.blocks, State::waiting), seen_(launch.blocks),
      turn_(new std::condition_variable[launch.blocks]), random_(static_cast<uint32_t>(launch.seed)) {
  for (int b = 0; b < launch.blocks; ++b) blocks_.push_back(std::make_unique<Block>(*this, b));
}

// Gives free workers to blocks that can go on, chosen by the seed; finds out when there are none left.
void Grid::dispatch() {
  while (running_ < launch_.workers) {
    std::vector<int> able, spinning;
    for (int b = 0; b < launch_.blocks; ++b) {
      const bool looks = states_[b] == State::idle && seen_[b] != progress_ && seen_[b] != UINT64_MAX;
      if (looks) spinning.push_back(b);
      if (looks || states_[b] == State::waiting) able.push_back(b);
    }
    if (able.empty()) break;
    // Whoever looks at a barrier's word late also acquires what others have released on their way to the next barrier,
    // and races would hide; so for ThreadSanitizer all look before any goes on.
    const std::vector<int> &among = sanitized && !spinning.empty() ? spinning : able;
    const int b = among[random_() % among.size()];
    if (states_[b] == State::idle) --idle_;
    states_[b] = State::running;
    ++running_;
    turn_[b].notify_one();
  }
  if (running_ > 0 || failed() || ended_ == launch_.blocks) return;
  std::string report;
  for (int b = 0; b < launch_.blocks; ++b)
    if (states_[b] != State::ended) blocks_[b]->describe(report);
  if (ended_ > 0) report += std::to_string(ended_) + " of " + std::to_string(launch_.blocks) + " blocks have ended\n";
  fail_locked(stuck, report);
}

void Grid::sleep(int block, std::unique_lock<std::mutex> &lock) {
  dispatch();
  turn_[block].wait(lock, [&] { return states_[block] == State::running || failed(); });
}

bool Grid::idle(int block, uint64_t seen) {
  std::unique_lock<std::mutex> lock(mutex_);
  states_[block] = State::idle;
  seen_[block] = seen;
  ++idle_;
  --running_;
  sleep(block, lock);
  return !failed();
}

void Grid::progressed(int block) {
  ++progress_;
  if (idle_ == 0 && launch_.workers >= launch_.blocks) return;
  std::unique_lock<std::mutex> lock(mutex_);
  // Now and then another block gets the worker right here, so that the last to arrive is not always the first to go.
  if (sanitized || random_() % 2 == 0) {
    states_[block] = State::waiting;
    --running_;
    sleep(block, lock);
  } else {
    dispatch();
  }
}

void Grid::yield(int block) {
  std::unique_lock<std::mutex> lock(mutex_);
  states_[block] = State::waiting;
  --running_;
  sleep(block, lock);
}

void Grid::fail_locked(Status status, const std::string &report) {
  if (failed()) return;
  const size_t length = std::min(report.size(), launch_.report_size - 1);
  memcpy(launch_.report, report.data(), length);
  launch_.report[length] = '\0';
  status_ = status;
  for (int b = 0; b < launch_.blocks; ++b) turn_[b].notify_one();
}

void Grid::fail(Status status, const std::string &report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_locked(status, report);
}

void Grid::body(int b) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    turn_[b].wait(lock, [&] { return states_[b] == State::running || failed(); });
  }
  if (!failed()) blocks_[b]->run();
  std::unique_lock<std::mutex> lock(mutex_);
  if (!failed() && !blocks_[b]->shared_intact())
    fail_locked(corrupted, "block " + std::to_string(b) + " wrote outside its shared memory\n");
  states_[b] = State::ended;
  ++ended_;
  --running_;
  ++progress_; // who waits for this block may look once more, and then knows
  dispatch();
  if (ended_ == launch_.blocks) all_ended_.notify_one();
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
      for (int b = 0; b < launch_.blocks; ++b)
        if (states_[b] != State::ended) blocks_[b]->describe(report);
      fail_locked(timed_out, report);
      lock.unlock();
      for (auto &thread : threads) thread.detach(); // a thread in an endless loop cannot be ended from outside
      return timed_out;
    }
  }
  for (auto &thread : threads) thread.join();
  for (auto &block : blocks_) block->join();
  return static_cast<Status>(status_.load());
}

} // namespace host

// Runs the kernel once. On timed_out the grid is left behind with the threads that still use it.
extern "C" int lab_launch(const host::Launch *launch) {
  auto grid = std::make_unique<host::Grid>(*launch);
  const host::Status status = grid->run();
  if (status == host::timed_out) grid.release();
  return status;
}
