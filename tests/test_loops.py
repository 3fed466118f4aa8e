"""Facts of loops read from SASS: listings worked by hand, and a kernel that NVRTC compiles."""

import pytest
from composed import Composed

from experiments.prediction.loops import Line, cache_loop, stage_loops, under_way, weights_loop

ROW = (
    """
 IADD3 R0, R0, 0x1, RZ
 LDG.E.128.CONSTANT R4, [R2.64]
 LDG.E.128.CONSTANT R8, [R2.64+0x200]
 LDS.128 R12, [R1]
 IMAD.U32 R20, R4, 0x10000, RZ
 FFMA.FTZ R21, R20, R12, RZ
 FFMA.FTZ R21, R8, R13, R21
"""
    + 14 * " FFMA.FTZ R21, R9, R14, R21\n"
)  # two loads under way: the first is used after the second is sent
ONE_BY_ONE = """
 LDG.E.64.CONSTANT R4, [R2.64]
 FFMA R21, R4, R12, R21
 FFMA R21, R5, R12, R21
 LDG.E.64.CONSTANT R4, [R2.64+0x100]
 FFMA R21, R4, R12, R21
"""
TURN = """
 LDG.E.64 R4, [R2.64]
 FFMA R21, R4, R12, R21
 SHFL.BFLY PT, R5, R21, 0x10, 0x1f
 LDG.E.64 R6, [R2.64+0x100]
 FFMA R22, R6, R5, R22
"""
COPIES = """
 LDGSTS.E.BYPASS.128 [R3], [R2.64]
 LDGSTS.E.BYPASS.128 [R3+0x200], [R2.64+0x200]
 LDS.128 R8, [R3]
"""


def lines(text: str) -> list[Line]:
    return [Line(name, operands, "qkv") for name, operands in (row.split(None, 1) for row in text.splitlines() if row)]


def test_a_load_is_under_way_until_its_register_is_read():
    for text, found in ((ROW, (2, 1)), (ONE_BY_ONE, (1, 2)), (COPIES, (2, 1))):
        assert under_way([(line, line.weights) for line in lines(text)]) == found
    assert under_way([(line, line.written) for line in lines(TURN)]) == (1, 2)
    assert under_way([]) == (0, 0)


def test_a_row_by_hand():
    """21 instructions for 1 KB: two loads of 16 bytes by 32 lanes; half a KB of the vector passes shared memory."""
    loop = weights_loop([lines(ROW)])
    assert loop is not None
    assert (loop.instructions, loop.through_l1, loop.loads, loop.width, loop.phases) == (21, 512, 2, 16, 1)


def test_a_loop_that_only_loads_counts_with_the_one_that_multiplies():
    """1 KB is copied by 3 instructions and multiplied by 16 FFMA and a load: 64 bytes of weights an FFMA."""
    multiply = lines("\n".join([" LDS.128 R4, [R1]", *[" FFMA R21, R4, R12, R21"] * 16]))
    loop = weights_loop([lines(COPIES), multiply])
    assert loop is not None
    assert loop.instructions == 3 + 17
    assert loop.through_l1 == 512 + 512


def test_the_loop_over_the_cache_is_the_shortest_that_loads_twice():
    loop = cache_loop([lines(TURN + ROW), lines(TURN), lines(ROW)])
    assert loop is not None
    assert (loop.instructions, loop.loads, loop.width, loop.phases) == (5, 1, 8, 2)
    assert cache_loop([lines(ROW)]) is None
    assert weights_loop([lines(TURN)]) is None


@pytest.mark.parametrize(("names", "width"), [("vec128 redundant_rmsnorm", 16), ("graph", 8)])
def test_loops_of_a_compiled_kernel_belong_to_its_stages(names, width, tiny, tmp_path):
    """One kernel, whose callers tell the stages, and a kernel for each stage. One row of 64 columns is one load."""
    found = stage_loops(Composed(tuple(names.split())).source(tiny), "sm_80", tmp_path)
    assert set(found) == {"qkv", "attention", "o_proj", "gate_up", "down", "lm_head"}
    assert {loop.width for loop in found.values()} == {width}
    assert found["attention"].phases == 2, "the value is loaded after the key is used"
    assert found["gate_up"].loads >= 1
    assert all(loop.instructions > 8 for loop in found.values())
