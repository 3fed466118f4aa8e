// What the copies into a ring of shared memory and the products out of it have to agree on.
#pragma once
#include "params.cuh"

constexpr int most_sums = 512 / block_warps; // products of a tile at most, and those that a block finishes together

DEVICE constexpr int fewer(int a, int b) { return a < b ? a : b; }
