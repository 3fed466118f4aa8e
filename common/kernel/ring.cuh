// Constants shared by the copies into the ring in shared memory and the products out of it.
#pragma once
#include "params.cuh"

constexpr int most_sums = 512 / block_warps; // products of a tile at most; a block finishes as many together

DEVICE constexpr int fewer(int a, int b) { return a < b ? a : b; }
