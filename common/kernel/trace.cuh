// Time stamps of every block: at the start and the end of each stage, and when the block has its result. Used by
// `python -m profiles tool=timeline`.
//
// A mixin like any variant, around the whole stack; only the text of a traced kernel includes this file. Thread 0 takes
// the stamps: a stage ends when the block's first warp is done, and time until the others are done counts as waiting.
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

  // A result by value is waited for inside of the next stage.
  template <Stage S> static DEVICE void received(const Context &c, int layer) { stamp<S>(c, layer, passed); }

  // [stage][layer][block][moment], 64 bits each. Every step overwrites the stamps of the step before.
  template <Stage S> static DEVICE void stamp(const Context &c, int layer, Moment moment) {
    if (threadIdx.x != 0) return;
    const int row = (static_cast<int>(S) * model::layers + layer) * max_blocks + blockIdx.x;
    auto *to = reinterpret_cast<unsigned long long *>(c.scratch + scratch_at::trace) + row * moments + moment;
    *to = global_timer();
  }
};
