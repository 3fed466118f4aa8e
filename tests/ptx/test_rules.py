"""Rules of CUDA that a kernel breaks in one line: the machine stops there, and the report names the rule and the line.

docs/limits.md lists what a GPU allows, though no kernel of the lab should do it.
"""

import re
from itertools import count

import pytest

from common.config.resolve import model_named
from common.errors import Crashed, Hung
from common.model.layout import Layout

pytestmark = pytest.mark.cpu

# Lines that one thread executes, or a whole block, and the report. The token is the number of a line.
ONE = "if (blockIdx.x == 1 && threadIdx.x == 40) {{ {} }}"
END = f"const int end = {Layout(model_named('tiny')).scratch_size}; (void)end;"
OUT_OF_SHARED = r"outside shared memory, \d+ B from 0x400 on: {} bytes at 0x"
OUTSIDE = "outside the buffers: {} bytes at 0x[0-9a-f]+, {}"
ENDS = "a thread ends while its cp.async is in flight"  # known at the end of its kernel only
OF_ONE_THREAD = {
    "c.scratch[end] = 1;": OUTSIDE.format(4, "0 bytes after the end of the scratch buffer"),
    "*out = c.scratch[end + 4];": OUTSIDE.format(4, "16 bytes after the end of the scratch buffer"),
    "c.scratch[-2000] = 1;": OUTSIDE.format(4, "8000 bytes before the scratch buffer"),
    "*out = int(c.cache[-5000]);": OUTSIDE.format(2, "10000 bytes before the cache buffer"),
    "c.state[-1] = 1;": OUTSIDE.format(4, "4 bytes before the state buffer"),
    "*out = load_weight(c.weights - 1);": OUTSIDE.format(2, "2 bytes before the weights buffer"),
    "c.cache[-1] = Cache();": OUTSIDE.format(2, "2 bytes before the cache buffer"),
    "*out = *(volatile float *)(size_t(c.token) << 40);": "outside the buffers: 4 bytes at 0x[0-9a-f]+:",
    "prefetch_l2(out + end);": OUTSIDE.format(1, "0 bytes after the end of the scratch buffer"),
    "prefetch_bulk(c.weights - 8, 32);": "a bulk prefetch from outside the buffers: 32 bytes",
    "const_cast<Weight *>(c.weights)[7] = Weight(1);": (
        "a write to read-only memory: 2 bytes at .*, 14 bytes into the weights"
    ),
    "atomicAdd((unsigned *)c.weights + 4, 0);": "a write to read-only memory: 4 bytes at .*, 16 bytes into the weights",
    "store_packet<4>((float *)c.weights, {});": "a write to read-only memory: 4 bytes",
    "(&s.unused)[-end] = 7;": OUT_OF_SHARED.format(4),
    "*out = (&s.unused)[1];": OUT_OF_SHARED.format(4),
    "(&s.unused)[2] = c.token;": OUT_OF_SHARED.format(4),
    "copy_async<4>(out, c.weights);": OUT_OF_SHARED.format(4),
    "out[0] = load_weights<16>(c.weights + 4).word[0];": "misaligned",
    "*(Packet<16> *)out = load_packet<16>(s.a + 3);": "misaligned",
    "store_packet<8>(s.a + 1, {});": "misaligned",
    "copy_async<16>(s.a + 3, c.weights);": "misaligned",
    "mbarrier_init((Mbarrier *)(s.a + 1), 1);": "misaligned",
    "copy_async<16>(s.a, c.weights);": ENDS,
    "copy_async<16>(s.a, c.weights); copy_commit();": ENDS,
    "copy_async<16>(s.a, c.weights); copy_async<8>(s.a + 2, c.weights); copy_wait<0>();": (
        "nothing orders this write of shared memory"
    ),
    "out[0] = 7 / (gridDim.x - 3);": "an integer is divided by zero",
    "trap();": "the kernel trapped",
}
MEET = "lanes of a warp wait for each other at two places"
OF_A_BLOCK = {
    "if (lane() < 7) __shfl_xor_sync(all_lanes, 1.0f, 1); else *own = __shfl_xor_sync(all_lanes, 2.0f, 1);": MEET,
    "if (lane() == 31) *own = __shfl_xor_sync(all_lanes, 1.0f, 2); else __syncwarp();": MEET,
    "if (lane() < 16) named_sync(3, 64); else { own[64] = 1; named_sync(3, 64); }": MEET,
    "if (lane() < 16) named_arrive(3, 64); else named_sync(3, 64);": MEET,
    "if (threadIdx.x != 40) *own = __shfl_xor_sync(all_lanes, 1.0f, 1);": "a shuffle from a lane that takes no part",
    "if (threadIdx.x < 32) named_sync(1, 64); else named_arrive(1, 96);": "has another number",
    "if (threadIdx.x < 32) named_sync(1, 96); else named_arrive(1, 96);": "waits at a barrier",
    "if (blockIdx.x != 1) grid_barrier(c, Stage::o_proj, 1);": (
        r"polls common/kernel/asm.cuh:\d+ \(from common/kernel/barrier.cuh:\d+, test:9\)"
    ),
}
OWN = "float *const own = out + 128 * blockIdx.x + threadIdx.x; (void)own;"
# Lines of a loader's first thread, after the initialization of the barriers in shared memory.
SHARED = "alignas(16) unsigned short tile[3][64]; Mbarrier full[2], late[1], empty, never; alignas(16) float b[64];"
START = """if (threadIdx.x == 64) {
    mbarrier_init(s.full, 1); mbarrier_init(s.full + 1, 1); mbarrier_init(&s.empty, 2);
    mbarrier_init_fence();
  }
  named_sync(1, 96); if (lane() != 0) return;"""
CALLS = """#define expect(at, bytes) mbarrier_arrive_expect(s.full + at, bytes)
#define ask(at, from, bytes) copy_bulk(s.tile[at], from, bytes, s.full + at)
#define wait(at) while (!mbarrier_try_wait(s.full + at, 0)) {}
#line 1 "loader"
"""
OF_A_LOADER = {
    "mbarrier_arrive(&s.never);": "there is no initialized mbarrier",
    "mbarrier_init(s.full, 1);": "a second mbarrier.init",
    "mbarrier_init(&s.never, gridDim.x - 1);": "an mbarrier for 0",  # NVRTC ends for a constant 0
    "mbarrier_init((Mbarrier *)out, 1);": OUT_OF_SHARED.format(8),
    "mbarrier_init(s.late, 1); expect(2, 16); ask(2, c.weights, 16); wait(2);": (
        "no fence has handed the mbarrier.init to the async proxy"
    ),
    "expect(0, 16); mbarrier_arrive(s.full);": "more arrivals than the mbarrier's phase takes",
    "expect(0, 1 << 20);": "an mbarrier waits for 1048576 bytes",
    "expect(0, 64); ask(0, c.weights, 24);": "a bulk copy of 24 bytes that are not aligned to 16",
    "expect(0, 64); ask(0, c.weights + 4, 16);": "a bulk copy of 16 bytes that are not aligned to 16",
    "expect(0, 16); copy_bulk(s.tile[0] + 4, c.weights, 16, s.full);": "that are not aligned to 16",
    "c.cache[12] = Cache(1); expect(0, 64); ask(0, c.cache, 64); wait(0);": (
        "no fence.proxy.async comes before this bulk copy of cache byte 24"
    ),
    "expect(0, 400); ask(0, c.weights, 400);": "a store over an mbarrier",
    "expect(0, 1 << 17); copy_bulk(s.b, c.weights, 1 << 17, s.full);": "outside shared memory",
    "expect(0, 256); ask(0, c.weights, 128); ask(0, c.weights + 64, 128); wait(0);": (
        "nothing orders this bulk copy of shared memory byte 0"
    ),
    "s.tile[0][9] = 3; expect(0, 128); ask(0, c.weights, 128); wait(0);": (
        "no fence.proxy.async comes before this bulk copy of shared memory byte 18"
    ),
    "expect(1, 128); ask(1, c.weights, 128); s.tile[1][9] = 3; wait(1);": "nothing orders this write of shared memory",
    "expect(0, 64); ask(0, c.cache, 64); c.cache[12] = Cache(1); wait(0);": (
        "nothing orders this write of cache byte 24"
    ),
    "s.full[0] = 0; mbarrier_arrive(s.full);": "a store over an mbarrier",
    "expect(0, 128); ask(0, c.weights, 128);": "no thread has waited for this copy",
    "expect(0, 192); ask(0, c.weights, 128); wait(0);": "polls",  # bytes that never come
    "mbarrier_arrive(&s.empty); while (!mbarrier_try_wait(&s.empty, 0)) {}": "polls",
    "block_barrier();": "waits at a barrier of the block",
}


def chosen(start: str, lines: list[str]) -> str:
    """A kernel that executes the line that its token names, the first is 2: after `start`, which is one line of it."""
    cases = (f"case {number}: {{ {line} break; }}" for number, line in zip(count(2), lines, strict=False))
    return "\n".join([" ".join(start.split()) + " switch (c.token) {", *cases, "}"])


LINES = [ONE.format(each) for each in OF_ONE_THREAD]
KERNELS = (  # lines with their rules, the file that a report names, and arguments of a launch
    (OF_ONE_THREAD, "test", {"body": chosen(END, LINES), "shared": "alignas(16) float a[15];"}),
    (OF_A_BLOCK, "test", {"body": chosen(OWN, [*OF_A_BLOCK])}),
    (
        OF_A_LOADER,
        "loader",
        {"body": "named_sync(1, 96);", "shared": SHARED, "blocks": 1, "load": CALLS + chosen(START, [*OF_A_LOADER])},
    ),
)
CASES = [
    pytest.param(rule, f"{file}:{token}", kernel | {"token": token}, id=line)
    for rules, file, kernel in KERNELS
    for token, (line, rule) in enumerate(rules.items(), 2)
]


@pytest.mark.parametrize(("rule", "place", "kernel"), CASES)
def test_a_line_that_breaks_a_rule_is_reported(launch, rule, place, kernel, seed):
    with pytest.raises((Crashed, Hung)) as found:
        launch(**kernel, races=True, seed=seed)
    told = f"{found.value} {getattr(found.value, 'report', '')}"
    assert re.search(rule, told), told
    assert rule == ENDS or re.search(rf"{place}\b", told), told


@pytest.mark.parametrize("kernel", [kernel for *_, kernel in KERNELS])
def test_without_such_a_line_a_kernel_ends(launch, kernel, seed):
    launch(**kernel, token=1, races=True, seed=seed)
