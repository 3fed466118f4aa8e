// Idea        q/k norm and RoPE in the blocks that attend, one block per query head; all blocks go on projecting
// Hypothesis  one grid barrier per layer is saved (28 of 227 at 28 layers); a block makes its query head and the
//             token's key and value from 1.5 KB, so blocks that share a KV head repeat its key and value
// Overrides   heads_apart, qk_norm_rope, after, prepare, query, entry
// Run         python -m experiments variant=joint_heads
#include "common/kernel/decode.cuh"

template <class Base> struct JointHeads : Base {
  using Self = typename Base::Self;
  static constexpr int group = model::heads / model::kv_heads; // query heads that share a KV head

  struct Shared : Base::Shared {
    alignas(16) float query[model::head_dim];
    alignas(16) EntryUnit key[Self::tokens][entry_units], value[Self::tokens][entry_units]; // entries of this step
  };

  static constexpr bool heads_apart = false;
  static DEVICE void qk_norm_rope(const Context &, int) {} // its work is in `prepare`

  template <Stage S> static DEVICE void after(const Context &c, int layer) {
    if constexpr (S != Stage::qk_norm_rope) Base::template after<S>(c, layer);
  }

  // True if this block stores the tap and the cache entry of a head that it makes.
  static DEVICE bool stores_heads() { return true; }

  // Makes the query and, if the block attends to the token itself, keys and values of the step's tokens up to it, each
  // by one warp. One block of a query head stores its tap, and of the first query head of a KV head also the token's
  // cache entry. This step's attention reads entries from shared memory.
  static DEVICE void prepare(const Context &c, int layer, int head, int end) {
    auto &s = shared<Self>(c);
    const int kv_head = head / group;
    const bool own = end == c.position + 1;
    const int entries = own ? 1 + c.number : 0;
    float *room = s.softmax.value[warp()]; // attention, which follows, overwrites it
    for (int part = warp(); part < 1 + 2 * entries; part += block_warps) {
      const int n = Self::tokens == 1 ? 0 : (part - 1) % entries; // the token whose key or value this part is
      const Context token = Self::of(c, n);
      const bool stores = n == c.number && Self::stores_heads() && head % group == 0;
      const size_t row = size_t(c.position) * entry_units;
      if (part == 0) {
        float *out = tap<Stage::qk_norm_rope>(c, layer) + head * model::head_dim;
        norm_rope(c, layer, head, layer_weights(c, weight_at::q_norm, layer), [&](int i, float value) {
          s.query[i] = value;
          if (own && Self::stores_heads()) out[i] = value;
        });
      } else if (part <= entries) {
        EntryUnit *out = keys(c, layer, kv_head) + row;
        const auto make = [&](auto put) {
          norm_rope(token, layer, model::heads + kv_head, layer_weights(c, weight_at::k_norm, layer), put);
        };
        store_entry(room, make, [&](int i, EntryUnit unit) {
          s.key[n][i] = unit;
          if (stores) out[i] = unit;
        });
      } else {
        EntryUnit *out = values(c, layer, kv_head) + row;
        const auto make = [&](auto put) {
          for (int i = lane() * 4; i < model::head_dim; i += 32 * 4) {
            const int first = (model::heads + model::kv_heads + kv_head) * model::head_dim;
            const auto x = Self::template receive<Stage::qkv, 4>(token, layer, first + i);
            UNROLL
            for (int j = 0; j < 4; ++j) put(i + j, x.value[j]);
          }
        };
        store_entry(room, make, [&](int i, EntryUnit unit) {
          s.value[n][i] = unit;
          if (stores) out[i] = unit;
        });
      }
    }
    block_barrier();
  }

  // Normalizes and rotates one head by one warp, as it arrives. `head` counts in the order of the qkv rows.
  template <class Out>
  static DEVICE void norm_rope(const Context &c, int layer, int head, const Weight *gains, Out out) {
    const auto pairs = [&](int i) {
      return Self::template receive<Stage::qkv, 8, 4, rope_pairs>(c, layer, head * model::head_dim + i);
    };
    head_norm_rope(pairs, gains, Self::angles(c), out);
  }

  template <int N> static DEVICE Floats<N> query(const Context &c, int, int, int i) {
    return load_floats<N>(shared<Self>(c).query + i);
  }

  template <Entry E> static DEVICE auto entry(const Context &c, const EntryRow &row, int position, int i) {
    if (position < c.position - c.number) return Base::template entry<E>(c, row, position, i);
    const auto &s = shared<Self>(c);
    const int n = Self::tokens == 1 ? 0 : position - (c.position - c.number);
    return EntryRow{E == Entry::key ? s.key[n] : s.value[n]}.template load<Self::load_bytes>(i);
  }
};
