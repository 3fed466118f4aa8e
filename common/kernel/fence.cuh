// One more operation of the port, for the variants that need it: see port.cuh.
#pragma once
#include "port.cuh"

namespace port {

// Orders what this thread did or saw before it, at GPU scope, before what follows. What it publishes afterwards carries
// that to whoever looks at it before a fence of its own; both fences order what a block barrier ordered before them.
DEVICE void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

} // namespace port
