// Idea        producer/consumer through a ring in shared memory: a loader warp copies the rows of its block, in bulk
//             where the GPU can, in the order of their use; the other warps multiply from the ring
// Hypothesis  copies hold no registers and wait for no input: with ahead=1 loads continue while blocks wait for each
//             other, until the ring is full; a window smaller than the ring keeps memory's queue short
// Overrides   enter, load, matvec
// Run         python -m experiments variant=bulk_ring slots=12 kb=16 window=2 ahead=1
#include "common/kernel/decode.cuh"
#include "common/kernel/ring.cuh"

template <class Base> struct BulkRing : Base {
  using Self = typename Base::Self;
  static constexpr int slots = knob::bulk_ring::slots, slot_bytes = knob::bulk_ring::kb << 10;
  static constexpr int window = min_of(knob::bulk_ring::window, slots); // tiles under way at most
  static constexpr bool ahead = knob::bulk_ring::ahead;
  using Copies = SlotCopies<knob::bulk_ring::copies_is_bulk>;
  static constexpr int all_threads = 1; // number of the named barrier of the block and its loader

  struct Shared : Base::Shared {
    alignas(128) unsigned char slot[slots][slot_bytes]; // whole 128-byte lines
    Mbarrier full[slots], empty[slots];                 // a slot's tile has arrived; every warp has read it
    Mbarrier begun;                                     // the block has begun a job; for ahead=0
    unsigned tile[block_threads];                       // next tile of each thread, counted through all jobs
  };

  // A block multiplies neighbouring rows of a job, one run of bytes in each matrix. A tile is as many of them as fit
  // into a slot and into the places for sums, one matrix after the other.
  template <class Job> struct Rows {
    static constexpr int row_bytes = Job::Row::bytes;
    static constexpr int per_tile = min_of(slot_bytes / row_bytes, max_sums) / Job::matrices;
    static_assert(per_tile > 0, "a slot of the ring does not hold a row of every matrix: raise kb, to 16 at most, "
                                "or leave bulk_ring out");
    static_assert(row_bytes % 16 == 0, "copies into the ring need rows of a multiple of 8 weights");
    const int first, count; // rows * parts fits in 32 bits for any grid
    DEVICE explicit Rows(const Job &job)
        : first(int(unsigned(job.rows) * job.part / job.parts)),
          count(int(unsigned(job.rows) * (job.part + 1) / job.parts) - first) {}
    // Row `r` of matrix `m` in the slot of a tile.
    static DEVICE unsigned char *place(unsigned char *slot, int m, int r) {
      return slot + (m * per_tile + r) * row_bytes;
    }
    static DEVICE auto at(unsigned char *slot, int m, int r) { return typename Job::Row::Shared{place(slot, m, r)}; }
  };

  static DEVICE void enter(const Context &c) {
    Base::enter(c);
    auto &s = shared<Self>(c);
    if (int(threadIdx.x) < block_threads) s.tile[int(threadIdx.x)] = passed_tiles<slots>;
    if (threadIdx.x == block_threads) {
      for (int i = 0; i < slots; ++i) {
        mbarrier_init(&s.full[i], Copies::lanes);
        mbarrier_init(&s.empty[i], block_warps);
      }
      mbarrier_init(&s.begun, 1);
      mbarrier_init_fence();
    }
    named_sync(all_threads, block_threads + 32 * loader_warps);
  }

  // The loader needs neither the token nor any result.
  static DEVICE void load(const Context &c, int steps) {
    if (int(threadIdx.x) >= block_threads + Copies::lanes) return;
    unsigned tile = passed_tiles<slots>, jobs = passed_jobs;
    // not executed: a launch of this stack decodes one token; multi_step's more
    for (int step = 0; step < steps; ++step) {
      for (int layer = 0; layer < model::layers; ++layer) {
        feed<Stage::qkv>(c, layer, tile, jobs);
        feed<Stage::o_proj>(c, layer, tile, jobs);
        feed<Stage::gate_up>(c, layer, tile, jobs);
        feed<Stage::down>(c, layer, tile, jobs);
      }
      feed<Stage::lm_head>(c, 0, tile, jobs);
    }
    Copies::finish();
  }

  // L2 policy of a tile (first row, rows) of stage S.
  template <Stage S, class Mine> static DEVICE L2 in_l2(int, int) { return L2::pass; }

  template <Stage S> static DEVICE void feed(const Context &c, int layer, unsigned &tile, unsigned &jobs) {
    auto &s = shared<Self>(c);
    auto job = Self::template job<S>(c, layer);
    using Mine = Rows<decltype(job)>;
    const Mine mine(job);
    if (mine.count == 0) return;
    if constexpr (!ahead) wait_for_phase(c, &s.begun, jobs++);
    for (int done = 0; done < mine.count; done += Mine::per_tile, ++tile) {
      if (tile >= slots) wait_for_phase(c, &s.empty[tile % slots], tile / slots - 1);
      // not executed: the loader has begun tiles of the layers when it comes to those of the LM head
      if (tile >= window) wait_for_phase(c, &s.full[(tile - window) % slots], (tile - window) / slots);
      const int left = mine.count - done, rows = left < Mine::per_tile ? left : Mine::per_tile;
      Mbarrier *full = &s.full[tile % slots];
      Copies::begin(full, rows * Mine::row_bytes * job.matrices);
      UNROLL
      for (int m = 0; m < job.matrices; ++m)
        Copies::copy(Mine::place(s.slot[tile % slots], m, 0), job.row(m, mine.first + done).address,
                     rows * Mine::row_bytes, full, Self::template in_l2<S, Mine>(mine.first + done, rows));
      Copies::end(full);
    }
    Self::template fed<S>(c, layer);
  }

  // Called by the loader when all copies of stage S are under way. It must not wait.
  template <Stage S> static DEVICE void fed(const Context &, int) {}

  // A warp per row of the block, whatever tile it is in, so that a row of o_proj and of down has the same thread.
  template <class Job, class Emit> static DEVICE void matvec(const Context &c, const Job &job, Emit emit) {
    using Mine = Rows<Job>;
    auto &s = shared<Self>(c);
    const Mine mine(job);
    if constexpr (!ahead)
      if (threadIdx.x == 0 && mine.count > 0) mbarrier_arrive(&s.begun);
    unsigned tile = s.tile[int(threadIdx.x)];
    int row = warp();
    for (int done = 0; done < mine.count; done += Mine::per_tile, ++tile) {
      unsigned char *slot = s.slot[tile % slots];
      wait_for_phase(c, &s.full[tile % slots], tile / slots);
      const int end = mine.count < done + Mine::per_tile ? mine.count : done + Mine::per_tile;
      for (; row < end; row += block_warps) {
        float sums[Job::matrices];
        UNROLL
        for (int m = 0; m < Job::matrices; ++m) sums[m] = dot_row<Self>(Mine::at(slot, m, row - done), job.x);
        if (lane() == 0) emit(mine.first + row, sums);
      }
      __syncwarp(); // all lanes have read
      if (lane() == 0) mbarrier_arrive(&s.empty[tile % slots]);
    }
    s.tile[int(threadIdx.x)] = tile;
  }
};
