// Barriers in shared memory that count arrivals and bytes (mbarrier), and the copies that complete their phases: bulk
// copies, and cp.async of a thread that has handed them over.
//
// The rules are stricter than a GPU's. A copy's target is poison from its issue on, and the bytes land when no thread
// of the block can go on and one waits for them, in an order that the seed chooses. A wait names its phase, where a GPU
// sees its parity only. Bytes are expected before a copy brings them, and no more arrive than a phase counts, those
// that copies have still to make included.
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
  void commit();                       // those that it has handed over are in the group of this moment, too
  void wait_for_committed();           // until they have landed
  const Site *unfinished() const;      // a copy that the running thread has handed over, in flight; null: none
  void fence_proxy();
  bool land(std::mt19937 &random);      // one copy for which a thread waits; false: there is none
  std::string missing(int which) const; // what the phase in progress of a barrier waits for
  std::string in_flight() const;        // a copy that nothing has waited for; "" if there is none

private:
  struct Mbarrier {
    char *at;
    const Fiber *by;                     // who initialized it
    int arrivals, pending, promised = 0; // promised: by threads whose copies are in flight
    size_t expected = 0, asked = 0;      // bytes that have not landed, and those of them that copies bring
    unsigned phase = 0;                  // in progress: so many are complete
    unsigned age = 0;                    // phases that waits count beside them, an even number
    bool named = false;                  // by a wait
    int waiting = 0;
    bool fenced = false;
  };
  struct Run { // of bytes, by a bulk copy
    char *to;
    const void *from;
    size_t bytes;
    int which;
    Site site;
    uint64_t entries; // of the cache that were stored before it was issued
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
  std::vector<bool> targets_;  // of what is handed over, by 4 bytes of shared memory
};

} // namespace host
