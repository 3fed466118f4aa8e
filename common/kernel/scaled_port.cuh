// Operations on the halves and bytes of a word, as in port.cuh.
#pragma once
#include "port.cuh"

namespace port {

// a * b + c of the two bf16 in each word. Numbers below the smallest normal one are not flushed. sm_80.
DEVICE unsigned multiply_add_pair(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Four of the eight bytes of `b`, `a`, which are numbered from the lowest of a: each by four bits of `bytes`.
DEVICE unsigned permute(unsigned a, unsigned b, unsigned bytes) { return __byte_perm(a, b, bytes); }

} // namespace port
