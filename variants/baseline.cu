// Idea        one kernel per token: every stage of every layer in one launch, separated by grid barriers, as in the
//             first published megakernels
// Hypothesis  there are no launches and no host work between stages; a grid barrier after every stage, norms by one
//             block and 64-bit loads leave much of the bandwidth unused
// Overrides   nothing
// Run         python -m experiments variant=baseline
#include "common/kernel/decode.cuh"

template <class Derived> struct Baseline : Decode<Derived> {
  using Self = Derived;

  // 64-bit loads of weights and cache, as in the first published kernels.
  static constexpr int load_bytes = 8;
  static constexpr L1 load_l1 = L1::allocate;

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (S != Stage::argmax) Self::template exchange<S>(c, layer);
  }
  // Makes the result of stage S readable by other blocks.
  template <Stage S> static DEVICE void exchange(const Context &c, int layer) { Self::template barrier<S>(c, layer); }
  template <Stage S> static DEVICE void barrier(const Context &c, int layer) { grid_barrier(c, S, layer); }
  // Called by a thread whose part of a result that came by value is there. Only a trace does something then.
  template <Stage S> static DEVICE void received(const Context &, int) {}

  // Called by threads 1 and up while thread 0 waits at an epoch_barrier. It must not synchronize.
  template <Stage S> static DEVICE void while_waiting(const Context &, int) {}

  static DEVICE void input_norm(const Context &c, int layer) { Self::template normalize<Stage::input_norm>(c, layer); }
  static DEVICE void post_norm(const Context &c, int layer) { Self::template normalize<Stage::post_norm>(c, layer); }
  static DEVICE void final_norm(const Context &c) { Self::template normalize<Stage::final_norm>(c, model::layers); }

  // Block 0 normalizes; the other blocks wait at the grid barrier after the stage.
  template <Stage S> static DEVICE void normalize(const Context &c, int layer) {
    if (blockIdx.x != 0) return;
    rmsnorm<Self, S>(c, layer, Self::template publish<S>(c, layer));
  }

  // A warp per row.
  template <class Job, class Emit> static DEVICE void matvec(const Context &, const Job &job, Emit emit) {
    matvec_by_warp<Self>(job, emit);
  }

  // The number of blocks that have work in attention; the others go straight to the grid barrier.
  static DEVICE int attention_blocks(const Context &c) { return Self::tokens * Self::attention_parts(c); }

  // A part is the work of one block on one token; with fewer blocks than parts a block takes several.
  static DEVICE void attention(const Context &c, int layer) {
    const int parts = Self::attention_parts(c);
    for (int i = blockIdx.x; i < Self::tokens * parts; i += int(gridDim.x)) {
      if constexpr (Self::tokens == 1)
        Self::attend_part(c, layer, i);
      else
        Self::attend_part(Self::of(c, i / parts), layer, i % parts);
    }
  }
  // Here a part is a query head.
  static DEVICE int attention_parts(const Context &) { return model::heads; }
  static DEVICE void attend_part(const Context &c, int layer, int head) { Self::attend_head(c, layer, head); }
  static DEVICE void attend_head(const Context &c, int layer, int head) {
    const auto publish = Self::template publish<Stage::attention>(c, layer, head * model::head_dim);
    attend_block<Self>(c, layer, head, 0, c.position + 1, shared<Self>(c).softmax,
                       [&](int i, float, float sum, float value) { publish(i, value / sum); });
    block_barrier(); // all threads have read the parts before the next head overwrites them
  }

  // Called by all threads of a block before it attends to positions of `head` up to `end` - 1.
  static DEVICE void prepare(const Context &, int, int, int) {}

  // `N` elements of a query head, normalized and rotated, from element i on.
  template <int N> static DEVICE Floats<N> query(const Context &c, int layer, int head, int i) {
    return load_floats<N>(tap<Stage::qk_norm_rope>(c, layer) + head * model::head_dim + i);
  }

  // A packet of the key or the value of one position, from element i on; `row` is its place in the cache.
  template <Entry> static DEVICE auto entry(const Context &, const EntryRow &row, int, int i) {
    return row.template load<Self::load_bytes>(i);
  }
};
