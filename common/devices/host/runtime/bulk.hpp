// Barriers in shared memory that count arrivals and bytes (mbarrier), and the bulk copies that complete their phases.
//
// The rules are stricter than a GPU's. A copy's target is poison from its issue on, and the bytes land when no thread
// of the block can go on and one waits for them, in an order that the seed chooses. A wait names its phase, where a GPU
// sees its parity only. Bytes are expected before a copy brings them.
#pragma once
#include "machine.hpp"

#include <random>
#include <string>
#include <vector>

namespace host {

class Block;
struct Fiber;

class Bulk {
public:
  explicit Bulk(Block &block) : block_(block) {}
  void init(void *at, int arrivals, Site site);
  void fence_init();
  void arrive(void *at, unsigned bytes, Site site);         // bytes: expected, in addition
  void wait(void *at, unsigned phase, bool old, Site site); // old: the first wait for a barrier tells its age
  void copy(void *to, const void *from, size_t bytes, void *at, Site site);
  void fence_proxy();
  bool land(std::mt19937 &random);      // one copy for which a thread waits; false: there is none
  std::string missing(int which) const; // what the phase in progress of a barrier waits for
  std::string in_flight() const;        // a copy that nothing has waited for; "" if there is none

private:
  struct Mbarrier {
    char *at;
    const Fiber *by; // who initialized it
    int arrivals, pending;
    size_t expected = 0, asked = 0; // bytes that have not landed, and those of them that copies bring
    unsigned phase = 0;             // in progress: so many are complete
    unsigned age = 0;               // phases that waits count beside them, an even number
    bool named = false;             // by a wait
    int waiting = 0;
    bool fenced = false;
  };
  struct Copy {
    char *to;
    const void *from;
    size_t bytes;
    int which;
    Site site;
    uint64_t entries; // of the cache that were stored before it was issued
  };

  int find(const void *at, Site site) const;
  bool complete(int which);
  [[noreturn]] void stop(int which, const std::string &why, Site site) const;
  std::string name(int which) const;
  char *seen(const char *shared);
  bool unfenced(const char *from, size_t bytes);

  Block &block_;
  std::vector<Mbarrier> barriers_;
  std::vector<Copy> copies_; // in flight
  std::vector<char> seen_;   // shared memory as the copy engine knows it: copied, or stored before a proxy fence
};

} // namespace host
