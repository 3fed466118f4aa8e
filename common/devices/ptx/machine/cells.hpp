// The race detector's memory: for each word the last write, and the reads since.
#pragma once
#include "machine.hpp"

#include <span>

namespace ptx {

// One access: a write of a thread, or a read by some lanes of a warp at one time.
struct Epoch {
  uint32_t who = 0;   // first thread of the warp, or the clock component of an mbarrier
  uint32_t lanes = 0; // none: no access
  uint32_t time = 0;
  // in_step: volatile and shared; empties: stores Launch::empty; linked: a read that follows the cell's last write, or
  // an earlier write that the last one, by an atomic, has read, itself or by those between
  uint32_t pc : 20 = 0, strong : 1 = 0, scope : 2 = 0, in_step : 1 = 0, empties : 1 = 0, linked : 1 = 0, bytes : 6 = 0;
  bool any() const { return lanes != 0; }
  uint32_t thread() const { return who + uint32_t(std::countr_zero(lanes)); } // the first lane's
  Epoch only(uint32_t these) const {
    Epoch part = *this;
    part.lanes = these;
    return part;
  }
};

struct Cell {
  Epoch write, read;                        // the last write, and the only read since
  std::unique_ptr<std::vector<Epoch>> many; // reads in place of `read`, by warp
  struct Rare {
    std::vector<Epoch> earlier;    // writes with which more accesses race than with the later ones that are strong
    Epoch emptied;                 // the last write that made it empty, whatever has been written since
    std::unique_ptr<Cell[]> parts; // two halves, once a narrower access has come
  };
  std::unique_ptr<Rare> rare;
  uint32_t no_coherence = 0; // 1 + pc of a load through the read-only path

  Rare &more() {
    if (!rare) rare = std::make_unique<Rare>();
    return *rare;
  }
  std::span<Epoch> reads() { return many ? std::span(*many) : std::span(&read, 1); } // some may be empty
  void forget_reads() { many.reset(), read = {}; }
  Cell *halves() { // splits the word for good
    if (!more().parts) {
      rare->parts = std::make_unique<Cell[]>(2);
      for (Cell *half : {&rare->parts[0], &rare->parts[1]}) {
        half->write = write, half->read = read, half->no_coherence = no_coherence;
        if (many) half->many = std::make_unique<std::vector<Epoch>>(*many);
        if (!rare->earlier.empty()) half->more().earlier = rare->earlier;
      }
    }
    return rare->parts.get();
  }
};

// Shadow of a buffer, or of a block's shared memory.
struct Shadow {
  static constexpr uintptr_t word = 4;
  static constexpr size_t page_cells = 512;
  uintptr_t start, end;
  std::vector<std::unique_ptr<Cell[]>> pages;

  Cell &cell(uintptr_t at) {
    const size_t number = (at - start) / word, page = number / page_cells;
    if (pages.size() <= page) pages.resize(page + 1);
    if (!pages[page]) pages[page] = std::make_unique<Cell[]>(page_cells);
    return pages[page][number % page_cells];
  }

  // Calls does(cell, its address) for each cell of these bytes, until it returns false.
  template <class F> bool each(uintptr_t at, uint32_t bytes, F does) {
    const uintptr_t first = at / word * word;
    for (uintptr_t here = first; here < at + bytes; here += word)
      if (!part(cell(here), here, word, at, at + bytes, does)) return false;
    return true;
  }

private:
  template <class F> static bool part(Cell &c, uintptr_t here, uintptr_t size, uintptr_t at, uintptr_t end, F &does) {
    const bool whole = at <= here && here + size <= end;
    if (whole && !(c.rare && c.rare->parts)) return does(c, here);
    const uintptr_t middle = here + size / 2;
    Cell *halves = c.halves();
    return (at >= middle || part(halves[0], here, size / 2, at, end, does)) &&
           (end <= middle || part(halves[1], middle, size / 2, at, end, does));
  }
};

} // namespace ptx
