// Two more operations of the port, for sums that several blocks add to: see port.cuh. Relaxed at GPU scope, as publish
// and look.
#pragma once
#include "port.cuh"

namespace port {

DEVICE void add_relaxed(unsigned long long *word, unsigned long long value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Two neighbouring words, each read as a whole.
DEVICE void look_pair(const unsigned long long *from, unsigned long long *to) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(to[0]), "=l"(to[1]) : "l"(from) : "memory");
}

} // namespace port
