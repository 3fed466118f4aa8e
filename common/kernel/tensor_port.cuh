// The operations of tensor cores, as in port.cuh: one name and one meaning on CUDA and on the host device, whose half
// is common/devices/runtime/tensor_host.hpp.
#pragma once
#include "port.cuh"

// Four fp32 sums that a lane has of a product.
struct Sums {
  float value[4];
};

#ifdef __CUDACC__

namespace port {

// As thread(), read again in each call. A compiler computes what follows from thread() once and keeps it for the whole
// launch, which is too many registers where a stage has dozens of indices.
DEVICE int thread_anew() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// sums + a b of the last matrix b, + a b of the one before it, and so on to the first, by all lanes of a warp: a is
// 16 x 16 bf16 in shared memory, each b is 16 x 8 bf16, sums are 16 x 8 fp32. With g = lane / 4 and q = 2 * (lane % 4):
//   row   address of 8 columns of a, 16 bytes at a multiple of 16: lanes 0 to 7 have columns 0 to 7 of rows 0 to 7,
//         the next eight lanes those of rows 8 to 15; the other lanes have columns 8 to 15 in the same way
//   b     rows q and q + 8 of column g, each with the row after it
//   sums  columns q and q + 1 of row g, then of row g + 8
// Products are exact. In which order those of one matrix are added, and how rounded, is a GPU's own: the host device
// adds the products of two neighbouring columns of a, then these to the sum from the first to the last, each rounded to
// the nearest. sm_80.
template <int N> DEVICE Sums multiply_add(const void *row, const Packet<8> *b, Sums s) {
  unsigned a[4]; // words of rows g, g + 8, g, g + 8 from columns q, q, q + 8, q + 8
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(shared_address(row))
               : "memory");
  UNROLL
  for (int n = N - 1; n >= 0; --n)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(s.value[0]), "+f"(s.value[1]), "+f"(s.value[2]), "+f"(s.value[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[n].word[0]), "r"(b[n].word[1]));
  return s;
}

} // namespace port

#else
#include "tensor_host.hpp"
#endif
