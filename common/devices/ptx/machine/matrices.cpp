// Products of matrices by a warp (mma.sync) and the loads of their parts (ldmatrix).
#include "places.hpp"

#include <cmath>

namespace ptx {
namespace {

// Numbers of a word of 32 bits, low first.
struct Bf16 {
  static constexpr int in_word = 2;
  static float number(uint32_t word, int n) { return bits<float>(n ? word & 0xffff0000u : word << 16); }
};
struct F16 {
  static constexpr int in_word = 2;
  static float number(uint32_t word, int n) {
    const uint32_t h = word >> 16 * n, sign = h >> 15 << 31, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return bits<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent) return bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float x = float(fraction) * 0x1p-24f;
    return sign ? -x : x;
  }
};
struct Tf32 { // the low 13 bits do not count
  static constexpr int in_word = 1;
  static float number(uint32_t word, int) { return bits<float>(word & 0xffffe000u); }
};

template <class T> void spread(const uint32_t *words, float *to) { // first numbers of all words, second numbers
  for (int n = 0; n < T::in_word; ++n) LANES to[warp_size * n + i] = T::number(words[i], n);
}

// d = a b + c: 16 x 8 of fp32 from 16 x K and K x 8. With g = lane / 4 and q = lane % 4, words of a alternate between
// rows g and g + 8, then advance by 4 words of K; words of b are of column g; c and d have columns 2 q and 2 q + 1 of
// row g, then of row g + 8. Products are exact; they are added to c one after another, in the order of K.
// more: the registers of d, a, b, c.
template <class T, int K> struct Multiply {
  template <bool M> static void run(Warp &w, const In *in) {
    if (!gathered(w, in, all_lanes)) return;
    if (w.mask != all_lanes) return fault(w, in, "a product of matrices without all lanes of the warp");
    constexpr int wide = 4 * T::in_word, deep = K / wide; // a word of all lanes is 8 x wide numbers
    const uint32_t *more = &w.program->more[in->more];
    alignas(64) float a[deep][2][T::in_word][warp_size], b[deep][T::in_word][4][8], c[16][8];
    for (int j = 0; j < 2 * deep; ++j) spread<T>(w.reg<uint32_t>(more[4 + j]), a[j / 2][j % 2][0]);
    for (int j = 0; j < deep; ++j) {
      const uint32_t *words = w.reg<uint32_t>(more[4 + 2 * deep + j]);
      alignas(64) uint32_t turned[4][8];
      uint32_t *x = turned[0], *y = turned[1], *z = turned[2], *u = turned[3];
#pragma GCC ivdep
      for (int g = 0; g < 8; ++g)
        x[g] = words[4 * g], y[g] = words[4 * g + 1], z[g] = words[4 * g + 2], u[g] = words[4 * g + 3];
      spread<T>(turned[0], b[j][0][0]);
    }
    for (int half = 0; half < 2; ++half) {
      const float *even = w.reg<float>(more[4 + 3 * deep + 2 * half]),
                  *odd = w.reg<float>(more[5 + 3 * deep + 2 * half]);
      float *to = c[8 * half];
      LANES to[2 * i] = even[i], to[2 * i + 1] = odd[i];
    }
    for (int half = 0; half < 2; ++half) { // eight rows at once: independent chains of sums
      Eight sum[8];
      std::memcpy(sum, c[8 * half], sizeof sum);
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) {
        const int j = k / wide, q = k % wide / T::in_word, n = k % T::in_word;
        const float *row = &a[j][half][n][q];
        const Eight column = line(b[j][n][q]);
#pragma GCC unroll 8
        for (int g = 0; g < 8; ++g) sum[g] = fused(row[4 * g] - Eight{}, column, sum[g]);
      }
      std::memcpy(c[8 * half], sum, sizeof sum);
    }
    for (int half = 0; half < 2; ++half) {
      float *even = w.reg<float>(more[2 * half]), *odd = w.reg<float>(more[2 * half + 1]);
      const float *from = c[8 * half];
      LANES even[i] = made(from[2 * i]), odd[i] = made(from[2 * i + 1]);
    }
    NEXT;
  }
};

// ldmatrix: N matrices of 8 x 8 halves; lanes 8 m .. 8 m + 7 give the addresses of the rows of matrix m.
template <int N, bool Turned> struct LoadMatrix {
  [[gnu::noinline]] static bool load(Warp &w, const In *in) {
    const Flags f{in->flags};
    const uint32_t *more = &w.program->more[in->more];
    uint8_t *rows[warp_size];
    for (int i = 0; i < 8 * N; ++i) {
      const uint64_t address = address_of(w, in->a, f.wide(), i) + uint64_t(in->imm);
      rows[i] = place(w, in, f.space(), i, address, 16, reads);
      if (!rows[i]) return false;
    }
    if (w.grid->races && !w.grid->races->load(w, in, uint32_t((1ull << 8 * N) - 1), rows, 4, 4)) return false;
    for (int m = 0; m < N; ++m) {
      uint32_t *d = w.reg<uint32_t>(more[m]);
      for (int i = 0; i < warp_size; ++i) {
        uint16_t half[2];
        for (int k = 0; k < 2; ++k) {
          const int row = Turned ? i % 4 * 2 + k : i / 4, column = Turned ? i / 4 : i % 4 * 2 + k;
          half[k] = reinterpret_cast<const uint16_t *>(rows[8 * m + row])[column];
        }
        d[i] = half[0] | uint32_t(half[1]) << 16;
      }
    }
    return true;
  }
  static void run(Warp &w, const In *in) {
    if (!gathered(w, in, all_lanes) || !load(w, in)) return;
    GO_ON;
  }
};

// stmatrix, the same the other way.
template <int N, bool Turned> struct StoreMatrix {
  static void run(Warp &w, const In *in) {
    if (!gathered(w, in, all_lanes)) return;
    const Flags f{in->flags};
    const uint32_t *more = &w.program->more[in->more];
    uint8_t *rows[warp_size];
    uint64_t halves[warp_size][8];
    for (int i = 0; i < 8 * N; ++i) {
      const uint64_t address = address_of(w, in->a, f.wide(), i) + uint64_t(in->imm);
      rows[i] = place(w, in, f.space(), i, address, 16, writes);
      if (!rows[i]) return;
      for (int column = 0; column < 8; ++column) {
        const int row = i % 8, lane = Turned ? 4 * column + row / 2 : 4 * row + column / 2;
        halves[i][column] = w.reg<uint32_t>(more[i / 8])[lane] >> 16 * ((Turned ? row : column) % 2) & 0xffff;
      }
    }
    if (w.grid->races && !w.grid->races->store(w, in, uint32_t((1ull << 8 * N) - 1), rows, 2, 8, &halves[0][0])) return;
    for (int i = 0; i < 8 * N; ++i) {
      for (int column = 0; column < 8; ++column)
        reinterpret_cast<uint16_t *>(rows[i])[column] = uint16_t(halves[i][column]);
      w.grid->touch(rows[i], 16);
    }
    GO_ON;
  }
};
template <int N> void matrices(Ops &ops, const std::string &number) {
  put<LoadMatrix<N, false>>(ops, "ldmatrix" + number), put<LoadMatrix<N, true>>(ops, "ldmatrix" + number + ".trans");
  put<StoreMatrix<N, false>>(ops, "stmatrix" + number), put<StoreMatrix<N, true>>(ops, "stmatrix" + number + ".trans");
}

} // namespace

void add_matrices(Ops &ops) {
  put<Multiply<Bf16, 16>>(ops, "mma.m16n8k16.bf16"), put<Multiply<Bf16, 8>>(ops, "mma.m16n8k8.bf16");
  put<Multiply<F16, 16>>(ops, "mma.m16n8k16.f16"), put<Multiply<F16, 8>>(ops, "mma.m16n8k8.f16");
  put<Multiply<Tf32, 8>>(ops, "mma.m16n8k8.tf32"), put<Multiply<Tf32, 4>>(ops, "mma.m16n8k4.tf32");
  matrices<1>(ops, ".x1"), matrices<2>(ops, ".x2"), matrices<4>(ops, ".x4");
}

} // namespace ptx
