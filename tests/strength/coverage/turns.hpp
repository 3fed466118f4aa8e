// Classes of loops, for a coverage build: how many turns each execution of a loop took, as functions that gcov counts.
//
// turns.py puts a Loop before every loop of the kernel's text. `Where` names the loop; it is local to the function
// around it, so each instance of a template has a Loop of its own.
#pragma once

extern "C" {
#include <gcov.h>
}

#define UNCOUNTED __attribute__((no_profile_instrument_function)) // called in every turn

namespace turns {

template <class Where> class Loop {
public:
  explicit Loop(unsigned long begun = 0) : turns_(begun) {}

  // `again`: the loop's condition. `others`: whether another thread of the same group goes on. A thread that took a
  // turn and stops before another one has seen a last turn that is partial.
  UNCOUNTED bool more(bool again, bool others) {
    if (again) ++turns_;
    if (!again && others && turns_ > 0) partial();
    return again;
  }
  UNCOUNTED bool more(bool again) { return more(again, false); }
  UNCOUNTED void turn() { ++turns_; }

  ~Loop() {
    if (turns_ == 0) none();
    if (turns_ == 1) one();
    if (turns_ == 2) two();
    if (turns_ > 2) several();
  }

private:
  // The names are CLASSES of turns.py.
  static void none() {}
  static void one() {}
  static void two() {}
  static void several() {}
  static void partial() {}

  unsigned long turns_;
};

} // namespace turns

// Writes what gcov has counted since the last call to the program's data file, where gcov's library adds it up.
extern "C" [[gnu::visibility("default")]] UNCOUNTED void lab_dump_counters() {
  __gcov_dump();
  __gcov_reset();
}
