// The race detector's memory: a word that is accessed in parts.
#include "cells.hpp"

namespace ptx {

Cell *Cell::halves() {
  Rare &own = more();
  if (!own.parts) {
    own.parts = std::make_unique<Cell[]>(2);
    for (int i = 0; i < 2; ++i) {
      Cell &half = own.parts[i];
      half.write = write, half.read = read;
      if (many) half.many = std::make_unique<std::vector<Epoch>>(*many);
      if (!own.earlier.empty()) half.more().earlier = own.earlier;
      half.no_coherence = no_coherence;
    }
  }
  return own.parts.get();
}

} // namespace ptx
