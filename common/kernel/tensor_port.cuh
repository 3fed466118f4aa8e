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

// Four matrices of 8 x 8 bf16 out of shared memory, by all lanes of a warp: lane i has the address of row i % 8 of
// matrix i / 8, 16 bytes at a multiple of 16. Word m of lane i gets columns 2 * (i % 4) and the next one of row i / 4
// of matrix m. sm_75.
DEVICE Packet<16> load_matrices(const void *row) {
  Packet<16> p;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "r"(shared_address(row))
               : "memory");
  return p;
}

// sums + a b, by all lanes of a warp: a is 16 x 16 bf16, b is 16 x 8 bf16, sums are 16 x 8 fp32. With g = lane / 4 and
// q = 2 * (lane % 4), words of a have rows g, g + 8, g, g + 8 and columns q, q, q + 8, q + 8, each with the column
// after it; words of b have rows q and q + 8 of column g, each with the row after it; sums have columns q and q + 1 of
// row g, then of row g + 8. Products are exact. In which order they are added, and how rounded, is a GPU's own: the
// host device adds them to the sum from the first to the last, each rounded to the nearest. sm_80.
DEVICE Sums multiply_add(const Packet<16> &a, const Packet<8> &b, const Sums &sums) {
  Sums s;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%10, %11, %12, %13};"
               : "=f"(s.value[0]), "=f"(s.value[1]), "=f"(s.value[2]), "=f"(s.value[3])
               : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
                 "f"(sums.value[0]), "f"(sums.value[1]), "f"(sums.value[2]), "f"(sums.value[3]));
  return s;
}

} // namespace port

#else
#include "tensor_host.hpp"
#endif
