// Barriers in shared memory that count arrivals and bytes (mbarrier), and the copies that complete their phases: bulk
// copies, and cp.async handed over by a thread.
//
// The rules are stricter than a GPU's. A copy's target is poison from its issue on, and the bytes land when no thread
// of the block can go on and one waits for them, in an order by seed. A wait names its phase; a GPU sees its parity
// only. Bytes must be expected before a copy brings them, and arrivals of a phase, pending ones of copies included,
// must not exceed its count.
#pragma once
#include "machine.hpp"

#include <random>
#include <string>
#include <vector>

namespace host {

class Block;
struct Fiber;
struct Copy;

class Bulk {
public:
  explicit Bulk(Block &block);
  ~Bulk();
  void init(void *at, int arrivals, Site site);
  void fence_init();
  void arrive(void *at, unsigned bytes, Site site);         // bytes: expected, in addition
  void wait(void *at, unsigned phase, bool old, Site site); // old: the first wait for a barrier tells its age
  void copy(void *to, const void *from, size_t bytes, void *at, Site site);
  void hand_over(void *at, Site site); // the running thread's copies: it arrives when they have landed
  void commit();                       // adds the handed-over copies to the current group
  void wait_for_committed();           // until they have landed
  const Site *unfinished() const;      // a copy in flight, handed over by the running thread; null: none
  void fence_proxy();
  bool land(std::mt19937 &random);      // one copy that a thread waits for; false: there is none
  std::string missing(int which) const; // pending arrivals and bytes of a barrier's current phase
  std::string in_flight() const;        // a copy without a wait; "" if there is none

private:
  struct Mbarrier {
    char *at;
    const Fiber *by;                     // the thread that initialized it
    int arrivals, pending, promised = 0; // promised: arrivals pending on copies in flight
    size_t expected = 0, asked = 0;      // bytes that have not landed; the part requested by copies
    unsigned phase = 0;                  // the current one: number of complete phases
    unsigned age = 0;                    // further phases in the count of waits, an even number
    bool named = false;                  // a wait has named its phase
    int waiting = 0;
    bool fenced = false;
  };
  struct Run { // of bytes, by a bulk copy
    char *to;
    const void *from;
    size_t bytes;
    int which;
    Site site;
    uint64_t entries; // stores in the cache before its issue
  };
  struct Handed;

  int find(const void *at, Site site) const;
  bool complete(int which);
  [[noreturn]] void stop(int which, const std::string &why, Site site) const;
  std::string name(int which) const;
  char *seen(const char *shared);
  bool unfenced(const char *from, size_t bytes);
  bool land_run(size_t at);
  bool land_handed(size_t at);
  bool landed(char *to, const void *from, size_t bytes, uint64_t entries, Site site, const char *what);

  Block &block_;
  std::vector<Mbarrier> barriers_;
  std::vector<Run> copies_;    // in flight
  std::vector<Handed> handed_; // in flight
  std::vector<char> seen_;     // shared memory as copies know it: copied, or stored before a proxy fence
  std::vector<bool> targets_;  // of handed-over copies, by 4 bytes of shared memory
};

} // namespace host
