// Idea        the loader warp also copies keys and values of earlier positions into the ring; attention reads them
//             there. At long contexts several blocks attend to a head, and exchange softmax partials by value
// Hypothesis  with plain loads of keys, then values, a thread has one load under way; the ring has both before the
//             query arrives, and no load waits for the loop over positions. Query heads of a KV head share its copy
// Overrides   enter, step, load, attention, attention_parts, attend_part
// Run         python -m experiments variant=stream_kv chunk=128
#include "common/kernel/decode.cuh"
#include "common/kernel/split_softmax.cuh"

template <class Base> struct StreamKv : Base {
  using Self = typename Base::Self;
  static constexpr int fit = Base::slot_bytes / (2 * entry_bytes);
  static_assert(fit > 0, "a slot of the ring does not hold an entry of the cache: raise kb");
  static_assert(entry_bytes % 16 == 0, "copies into the ring need heads of a multiple of 8 elements");
  // A wait sees only the parity of a phase, so a warp must not skip a turn of the slots that it waits for.
  static_assert(Base::slots % warp_groups == 0, "groups of warps take the tiles of the cache in turn: make slots even");
  static constexpr int chunk = knob::stream_kv::chunk;
  static constexpr int per_tile = fit < chunk ? fit : chunk; // positions; in a slot keys come first, then values
  using Splits = KvSplits<chunk, per_tile>;
  using Lanes = Queries; // tensor_scores has its own
  using typename Base::Copies;

  struct Shared : Base::Shared {
    Mbarrier begins; // a step has begun: cache entries of earlier ones may be copied
  };

  static DEVICE void enter(const Context &c) {
    // equivalent: block_threads -> block_warps: any thread may initialize it, before the barrier in bulk_ring's enter
    if (threadIdx.x == block_threads) mbarrier_init(&shared<Self>(c).begins, 1);
    Base::enter(c); // its barrier shows `begins` to the block
  }

  // Whatever orders the last step before this one also orders the entries that it stored before this arrival.
  static DEVICE void step(const Context &c) {
    if (threadIdx.x == 0) mbarrier_arrive(&shared<Self>(c).begins);
    Base::step(c);
  }

  // As bulk_ring's, plus all cache entries before the step; only those of the step before need a wait.
  static DEVICE void load(const Context &c, int steps) {
    if (int(threadIdx.x) >= block_threads + Copies::lanes) return;
    unsigned tile = passed_tiles<Base::slots>, jobs = passed_jobs;
    for (int step = 0; step < steps; ++step) {
      int position = c.position + step;
      for (int layer = 0; layer < model::layers; ++layer) {
        Base::template feed<Stage::qkv>(c, layer, tile, jobs);
        if (layer == 0) {
          wait_for_phase(c, &shared<Self>(c).begins, step);
          Copies::see_stores();
          if constexpr (Self::tokens > 1) position = c.state[state_at::position]; // depends on accepted drafts
        }
        for (int i = blockIdx.x, parts = Splits::count(position); i < Self::tokens * parts; i += int(gridDim.x))
          feed_cache<Stage::attention>(c, layer, Splits::at(position, Self::tokens == 1 ? i : i % parts), tile, jobs);
        Base::template feed<Stage::o_proj>(c, layer, tile, jobs);
        Base::template feed<Stage::gate_up>(c, layer, tile, jobs);
        Base::template feed<Stage::down>(c, layer, tile, jobs);
      }
      Base::template feed<Stage::lm_head>(c, 0, tile, jobs);
    }
    Copies::finish();
  }

  // Copies the tiles of a split. S: the stage that reads them, for counts.
  template <Stage S>
  static DEVICE void feed_cache(const Context &c, int layer, const KvSplit &split, unsigned &tile, unsigned &jobs) {
    constexpr int slots = Base::slots, window = Base::window;
    auto &s = shared<Self>(c);
    const EntryUnit *key = keys(c, layer, split.head / head_group), *value = values(c, layer, split.head / head_group);
    if constexpr (!Base::ahead)
      // equivalent: synchronization dropped: it delays copies only; `begins` orders the entries of earlier steps
      if (split.begin < split.end) wait_for_phase(c, &s.begun, jobs++);
    for (int first = split.begin; first < split.end; first += per_tile, ++tile) {
      if (tile >= slots) wait_for_phase(c, &s.empty[tile % slots], tile / slots - 1);
      if (tile >= window) wait_for_phase(c, &s.full[(tile - window) % slots], (tile - window) / slots);
      const int bytes = positions_from(split, first) * entry_bytes;
      unsigned char *slot = s.slot[tile % slots];
      Mbarrier *full = &s.full[tile % slots];
      Copies::begin(full, 2 * bytes);
      Copies::copy(slot, key + size_t(first) * entry_units, bytes, full);
      Copies::copy(slot + per_tile * entry_bytes, value + size_t(first) * entry_units, bytes, full);
      Copies::end(full);
    }
  }

  // Number of positions in the tile that begins with position `first`.
  static DEVICE int positions_from(const KvSplit &split, int first) {
    return split.end - first < per_tile ? split.end - first : per_tile;
  }

  static DEVICE void attention(const Context &c, int layer) {
    UNROLL
    for (int n = 0; n < Self::tokens; ++n) reset_partials(Self::of(c, n), layer);
    Base::attention(c, layer);
  }

  // Here a part is a split.
  static DEVICE int attention_parts(const Context &c) { return Splits::count(c.position - c.number); }

  template <int AtOnce, class Held> static DEVICE void
  attend_tile(Held &heads, const KvSplit &split, const EntryUnit *key, const EntryUnit *value, int count) {
    if (split.heads == 1) return heads.template attend_tile<1, AtOnce>(key, value, count);
    heads.template attend_tile<head_group, AtOnce>(key, value, count);
  }

  static DEVICE void attend_part(const Context &c, int layer, int number) {
    auto &s = shared<Self>(c);
    const KvSplit split = Splits::at(c.position - c.number, number);
    if constexpr (!Base::ahead)
      // equivalent: boundary moved: a split without tiles may be announced: copies begin one job early at most
      if (threadIdx.x == 0 && split.begin < split.end) mbarrier_arrive(&s.begun);
    constexpr int lanes = group_warps * Queries::Split::positions, at_once = min_of((per_tile + lanes - 1) / lanes, 4);
    // Tiles are counted before the query arrives; the step's tokens up to this one are one more, for the group in turn.
    const int group = warp() / group_warps, tiles = (split.end - split.begin + per_tile - 1) / per_tile;
    const unsigned tile = s.tile[int(threadIdx.x)];
    const bool last = split.index + 1 == split.splits, token = last && tiles % warp_groups == group;
    typename Self::Lanes heads(c);
    ROLLED
    for (int h = 0; h < split.heads; ++h) {
      // equivalent: > -> >= or 0 -> (-1): an additional barrier before the first head
      if (h > 0) block_barrier(); // all threads have the query of the head before this one
      // not executed: models with as many KV heads as heads have too few blocks for two parts of a head
      Self::prepare(c, layer, split.head + h, last ? c.position + 1 : split.end);
      heads.load_query(h, s.query);
    }
    // not executed: the token is one position, so the loop over positions has no second turn
    if (token) attend_tile<1>(heads, split, s.key[0], s.value[0], 1 + c.number);
    for (int t = group; t < tiles; t += warp_groups) {
      const unsigned at = (tile + t) % Base::slots;
      const auto *copied = reinterpret_cast<const EntryUnit *>(s.slot[at]);
      wait_for_phase(c, &s.full[at], (tile + t) / Base::slots);
      attend_tile<at_once>(heads, split, copied, copied + per_tile * entry_units,
                           positions_from(split, split.begin + t * per_tile));
      __syncwarp();                                            // all lanes have read
      if (lane() < warp_groups) mbarrier_arrive(&s.empty[at]); // also for a warp of another group
    }
    s.tile[int(threadIdx.x)] = tile + tiles;
    UNROLL
    for (int h = 0; h < head_group; ++h) {
      if (h >= split.heads) break;
      const auto publish = Self::template publish<Stage::attention>(c, layer, (split.head + h) * model::head_dim);
      merge_warps(heads.merged(h), s.softmax, [&](int i, float max, float sum, float value) {
        if (split.splits == 1) return publish(i, __fdividef(value, sum));
        send_partial(c, layer, split.head + h, split.index, i, max, sum, value);
      });
      block_barrier(); // all threads have read the parts of warps before the next head overwrites them
    }
    if (split.splits > 1)
      merge_splits(c, layer, split, Self::template publish<Stage::attention>(c, layer, split.head * model::head_dim));
  }
};
