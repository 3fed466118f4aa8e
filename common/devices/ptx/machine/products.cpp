// Dot products of bf16 and fp32: sequences of rows that fuse.cpp finds, executed as one for a whole warp. Of their
// results only the last sum is written to the warp's file, which is larger than the CPU's caches.
#include "loads.hpp"

namespace ptx {
namespace {

using Words = uint32_t __attribute__((vector_size(32)));

// The sum of eight lanes and the products of a word of two bf16 with two factors, one after another.
inline Eight with_products(Words pair, Eight low, Eight high, Eight sum) {
  return fused(bits<Eight>(pair & 0xffff0000u), high, fused(bits<Eight>(pair << 16), low, sum));
}

inline void put_sum(float *d, Eight sum) {
  const Eight nan = made(NAN) - Eight{}, x = sum == sum ? sum : nan;
  std::memcpy(d, &x, sizeof x);
}

// more: number of words of two bf16; the sum before and after; then each word, and the factors of its low and its high
// half.
struct Dot {
  static void run(Warp &w, const In *in) {
    const uint32_t *more = &w.program->more[in->more], words = more[0];
    const float *before = w.reg<float>(more[1]);
    Eight sum[4] = {line(before), line(before + 8), line(before + 16), line(before + 24)};
    for (uint32_t k = 0; k < words; ++k) {
      const uint32_t *pairs = w.reg<uint32_t>(more[3 + 3 * k]);
      const float *low = w.reg<float>(more[4 + 3 * k]), *high = w.reg<float>(more[5 + 3 * k]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        sum[i] = with_products(bits<Words>(line(pairs + 8 * i)), line(low + 8 * i), line(high + 8 * i), sum[i]);
    }
    float *d = w.reg<float>(more[2]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) put_sum(d + 8 * i, sum[i]);
    in += 4 * words;
    return in->run[0](w, in);
  }
};

// Columns of a matrix of eight rows and N columns, which is in memory row by row: the even columns are those of the
// even elements, and so on. Column k goes to to[k * apart].
template <int N> inline void columns(const Words *from, Words *to, int apart = 1) {
  if constexpr (N == 1) {
    to[0] = from[0];
  } else {
    Words even[N / 2], odd[N / 2];
#pragma GCC unroll 4
    for (int i = 0; i < N / 2; ++i) {
      even[i] = __builtin_shuffle(from[2 * i], from[2 * i + 1], Words{0, 2, 4, 6, 8, 10, 12, 14});
      odd[i] = __builtin_shuffle(from[2 * i], from[2 * i + 1], Words{1, 3, 5, 7, 9, 11, 13, 15});
    }
    columns<N / 2>(even, to, 2 * apart);
    columns<N / 2>(odd, to + apart, 2 * apart);
  }
}
template <int N> inline void read_columns(const uint8_t *from, Words *to) {
  Words rows[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) rows[i] = bits<Words>(line(from + sizeof(Words) * i));
  columns<N>(rows, to);
}

// A load of N words of two bf16, N / 2 loads of the factors, and their dot product, if the words of all lanes are in a
// row in memory, and so are the factors; otherwise each row is executed by itself.
template <int N> struct LoadedDot {
  static void run(Warp &w, const In *in) {
    const In *factors = in + 1, *dot = factors + N / 2;
    const Lanes words_at = all_places(w, in, 4 * N, reads), factors_at = all_places(w, factors, 8 * N, reads);
    if (words_at.spacing != in_a_row || factors_at.spacing != in_a_row)
      return Load<uint32_t, uint32_t, N>::template run<false>(w, in);
    const uint8_t *words = first_place(w, in, words_at), *numbers = first_place(w, factors, factors_at);
    fetch_next(in, words, warp_size * 4 * N);
    const float *before = w.reg<float>(dot[1].c);
    float *d = w.reg<float>(dot[4 * N - 1].d);
#pragma GCC unroll 4
    for (int lane = 0; lane < warp_size; lane += 8) {
      Words pair[N], factor[2 * N];
      read_columns<N>(words + 4 * N * lane, pair);
      read_columns<2 * N>(numbers + 8 * N * lane, factor);
      Eight sum = line(before + lane);
#pragma GCC unroll 4
      for (int k = 0; k < N; ++k)
        sum = with_products(pair[k], bits<Eight>(factor[2 * k]), bits<Eight>(factor[2 * k + 1]), sum);
      put_sum(d + lane, sum);
    }
    in = dot + 4 * N;
    return in->run[0](w, in);
  }
};

} // namespace

void add_products(Ops &ops) {
  put<Dot>(ops, "dot"), put<LoadedDot<2>>(ops, "ld.v2 and dot"), put<LoadedDot<4>>(ops, "ld.v4 and dot");
}

} // namespace ptx
