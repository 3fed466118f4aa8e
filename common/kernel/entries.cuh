// Entries of the KV cache: the key or the value of a KV head at one position, a row of head_dim numbers in `KvFormat`,
// which common/model/layout.py defines in front of this text: bf16, or a scaled row (scaled.cuh) with one scale. No
// other text knows its bytes.
#pragma once
#include "weights.cuh"

// The two vectors that the cache holds for a position and a KV head.
enum class Entry { key, value };

// Stores an entry by one warp in `Unit`s: numbers in bf16, otherwise words of four numbers, and one with the scale.
template <class Format> struct Entries {
  enum class Unit : unsigned {};
  using Row = ::Row<Format, model::head_dim>;
  static constexpr int units = Row::bytes / 4;
  static constexpr float most = Format::real ? 448 : 127; // the largest number
  static constexpr float least = 0x1p-100f;               // a row below it becomes 0, so a scale is never subnormal

  // The smallest scale that keeps every number in range; 1 for an entry of zeros. NaN and Inf stay what they are.
  static DEVICE float scale(const float *x) {
    int bits = 0; // the largest magnitude's, in which NaN is larger than any number
    for (int i = lane(); i < model::head_dim; i += 32) {
      const int magnitude = int(__float_as_uint(x[i]) & 0x7fffffffu);
      bits = magnitude > bits ? magnitude : bits;
    }
    UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const int other = __shfl_xor_sync(all_lanes, bits, mask);
      bits = other > bits ? other : bits;
    }
    const float largest = __uint_as_float(unsigned(bits));
    const float exact = largest / most, up = __uint_as_float((__float_as_uint(exact) + 0xffffu) & 0xffff0000u);
    // equivalent: 1 -> 0: only for zeros, of which tests/ptx/test_kv_formats.py makes entries
    return largest < least ? 1
           // Rounding up a GPU's NaN, 0x7fffffff, would leave NaN.
           // equivalent: ? -> || true ?: only for NaN, of which that test makes entries
           : exact <= up ? up
                         : exact;
  }

  template <class Make, class To> static DEVICE void store(float *room, Make make, To to) {
    make([=](int i, float value) { room[i] = value; });
    __syncwarp();
    const float by = scale(room);
    for (int unit = lane(); unit < units; unit += 32) {
      unsigned word = 4 * unit == Row::scales ? __float_as_uint(by) >> 16 : 0; // padding is zeros
      UNROLL
      for (int j = 0; j < 4; ++j)
        if (4 * unit < model::head_dim) word |= Format::bits_of(room[4 * unit + j] / by) << 8 * j;
      to(unit, Unit(word));
    }
    __syncwarp(); // all lanes have read the room
  }
};
template <> struct Entries<Bf16> {
  enum class Unit : bf16 {};
  static constexpr int units = model::head_dim;
  template <class Make, class To> static DEVICE void store(float *, Make make, To to) {
    make([=](int i, float value) { to(i, Unit(to_bf16(value))); });
  }
};

using EntryUnit = Entries<KvFormat>::Unit;
constexpr int entry_units = Entries<KvFormat>::units, entry_bytes = entry_units * int(sizeof(EntryUnit));

// A row that may have been stored in the same launch, or lies in shared memory.
using EntryRow = SharedRow<KvFormat, model::head_dim>;

// Stores an entry by one warp. `make(out)` calls out(i, value) for each element in one of the lanes; `to(i, unit)`
// receives each unit. `room` is shared memory for one head, used by this warp alone.
template <class Make, class To> DEVICE void store_entry(float *room, Make make, To to) {
  Entries<KvFormat>::store(room, make, to);
}

// Keys and values of one KV head: [position][entry_units].
DEVICE EntryUnit *keys(const Context &c, int layer, int kv_head) {
  return reinterpret_cast<EntryUnit *>(c.cache) +
         (size_t(layer) * 2 * model::kv_heads + kv_head) * model::positions * entry_units;
}
DEVICE EntryUnit *values(const Context &c, int layer, int kv_head) { return keys(c, layer, model::kv_heads + kv_head); }
