// Idea        in each of the last layers the loader also prefetches a tile of lm_head into L2
// Hypothesis  memory idles while the ring is full and blocks wait for each other; lm_head waits for memory only. 12
//             tiles of 16 KB a block are 26 of 1,192 MB: 5.7 us at 4.57 TB/s. No line has to outlive a token
// Overrides   nothing
// Run         python -m experiments variant=head_prefetch head_tiles=12
#include "common/kernel/decode.cuh"
#include "common/kernel/ring.cuh"

template <class Base> struct HeadPrefetch : Base {
  using Self = typename Base::Self;

  // After the copies for o_proj. With more tiles than layers a layer prefetches several, which lie evenly among all
  // tiles of this block.
  template <Stage S> static DEVICE void fed(const Context &c, int layer) {
    Base::template fed<S>(c, layer);
    if constexpr (S == Stage::o_proj) {
      auto job = Self::template job<Stage::lm_head>(c, 0);
      using Mine = typename Base::template Rows<decltype(job)>;
      const Mine mine(job);
      const int all = (mine.count + Mine::per_tile - 1) / Mine::per_tile,
                some = min_of(knob::head_prefetch::head_tiles, all);
      for (int i = model::layers - 1 - layer; i < some; i += model::layers) {
        const int done = int(size_t(all) * i / some) * Mine::per_tile;
        Base::Copies::prefetch(job.row(0, mine.first + done).address,
                               min_of(Mine::per_tile, mine.count - done) * Mine::row_bytes);
      }
    }
  }
};
