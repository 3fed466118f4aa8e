// Constants shared by the copies into the ring in shared memory and the products out of it.
#pragma once
#include "params.cuh"

// Tiles that a ring has passed when a launch begins: 0, but for trials of an old ring (common/validate/prove.py). They
// are rounded down to whole turns, after which every barrier has the parity that it begins with.
#ifndef PASSED_TILES
#define PASSED_TILES 0u
#endif
template <int Slots> constexpr unsigned passed_tiles = PASSED_TILES / (2u * Slots) * (2u * Slots);
constexpr unsigned passed_jobs = PASSED_TILES / 2u * 2u;

constexpr int most_sums = 512 / block_warps; // products of a tile at most; a block finishes as many together

DEVICE constexpr int fewer(int a, int b) { return a < b ? a : b; }
