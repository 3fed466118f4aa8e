// When each block begins a stage, ends it, and has passed what stands behind it: `python -m profiles tool=timeline`.
//
// A mixin like any variant, put around the whole stack. Only the text of a traced kernel includes this file; every
// other kernel is the same, to the last instruction, as if there were no tracing. Thread 0 stamps, so a stage ends when
// the block's first warp is done, and waiting for the block's other warps counts as waiting.
#pragma once
#include "params.cuh"

template <class Base> struct Traced : Base {
  enum Moment { begin, end, passed, moments };

  template <Stage S> static DEVICE void perform(const Context &c, int layer) {
    stamp<S>(c, layer, begin);
    Base::template perform<S>(c, layer);
    stamp<S>(c, layer, end);
  }

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    Base::template after<S>(c, layer);
    stamp<S>(c, layer, passed);
  }

  // [stage][layer][block][moment], 64 bits each; a step overwrites what the one before it left.
  template <Stage S> static DEVICE void stamp(const Context &c, int layer, Moment moment) {
    if (port::thread() != 0) return;
    const int row = (static_cast<int>(S) * model::layers + layer) * max_blocks + port::block();
    port::stamp(reinterpret_cast<unsigned long long *>(c.scratch + scratch_at::trace) + row * moments + moment);
  }
};
