"""Clocks of a chain of instructions: paths worked by hand, compiled kernels, and an audit of `streaming` made apart."""

import re
from dataclasses import replace
from random import Random

import pytest
from composed import CATALOG, Composed
from sampled import sampled

from common.compile.control import Control
from common.compile.nvrtc import ARCHS, compile_cubin
from common.config.resolve import model_named
from common.model.stages import LAYER
from experiments.prediction.sass.buffers import APART, Buffers
from experiments.prediction.sass.chain import SPECIAL, chain, chains, summary
from experiments.prediction.sass.lane import Lane
from experiments.prediction.sass.operands import MASK
from experiments.prediction.sass.program import Instruction, Program
from experiments.prediction.sass.walk import Span, Walk

LATENCY = {
    "shared": 30,
    "shuffle": 24,
    "special": 22,
    "phase": 20,
    "barrier": 40,
    "operands": 10,
    "l1": 35,
    "l2": 400,
    "memory": 1000,
    "poll": 1300,
}
ROW = re.compile(r"(?:@(\S+) )?([A-Z][\w.]*) *(.*?) *\| *(\d+)(?: w(\d))?(?: r(\d))?(?: b(\d+))?$")


def program(text: str, stage: str = "qkv") -> Program:
    """Instructions with their stall, the scoreboards that they set when written (w) and read (r), and await (b)."""
    lines, labels = [], {}
    for row in filter(None, map(str.strip, text.splitlines())):
        if row.endswith(":"):
            labels[row[:-1]] = len(lines)
            continue
        guard, name, operands, stall, written, read, waits = ROW.fullmatch(row).groups()
        bits = Control(
            int(stall), False, int(written) if written else None, int(read) if read else None,
            tuple(map(int, waits or "")), (),
        )  # fmt: skip
        lines.append(Instruction(guard or "", name, tuple(operands.split(", ")), bits, stage))
    return Program(tuple(lines), labels)


@pytest.fixture
def walk(tiny):
    def walked(text: str, constants=None) -> list[Span]:
        buffers = Buffers(Composed(()).source(tiny), position=5)
        return Walk(program(text), Lane(constants or {}, {}), buffers, LATENCY).spans()

    return walked


def test_a_straight_path_by_hand(walk):
    """LDS at 0 is there at 30; FADD waits from 2 on, SHFL from 34 to 58; a store that is read until 72 ends it."""
    spans = walk("""
        LDS R1, [R0] | 2 w0
        FADD R2, R1, R1 | 4 b0
        SHFL.BFLY PT, R3, R2, 0x10, 0x1f | 1 w1
        FADD R2, R2, R3 | 4 b1
        STS [R0], R2 | 1 r2
        EXIT | 5 b2
    """)
    (clocks,) = [span.clocks for span in spans if span.issued]
    assert clocks == {"issue": 6, "fixed": 1 + 3 + 3 + 4, "shared": 28, "shuffle": 23, "operands": 9}


def test_a_loop_by_its_trip_count(walk, seed):
    """Its count is an argument; it may be 64 bits, a remainder, or behind a shift: see the compiled kernel below."""
    count = Random(seed).randrange(2, 50)
    spans = walk(
        """
        MOV R0, RZ | 4
        .L_0:
        FFMA R1, R1, R1, R1 | 4
        IADD3 R0, R0, 0x1, RZ | 4
        ISETP.GE.U32.AND P0, PT, R0, c[0x0][0x160], PT | 13
        @!P0 BRA `(.L_0) | 5
        EXIT | 5
        """,
        {(0, 0x160): count},
    )
    assert sum(sum(span.clocks.values()) for span in spans) == 4 + 26 * count + 5


def test_a_loop_whose_counter_is_spilled(walk, seed):
    """As above, with the counter in local memory between the turns; a word beside it is written in each of them."""
    count = Random(seed).randrange(2, 50)
    spans = walk(
        """
        LDC R1, c[0x0][0x28] | 4
        STL [R1+-0x8], RZ | 4
        .L_0:
        LDL.LU R5, [R1+-0x8] | 4
        STL [R1+-0x4], RZ | 4
        IADD3 R5, R5, 0x1, RZ | 4
        STL [R1+-0x8], R5 | 4
        ISETP.GE.U32.AND P0, PT, R5, c[0x0][0x160], PT | 13
        @!P0 BRA `(.L_0) | 5
        EXIT | 5
        """,
        {(0, 0x28): 1 << 20, (0, 0x160): count},
    )
    assert sum(sum(span.clocks.values()) for span in spans) == 8 + 34 * count + 5


def test_a_poll_takes_the_time_of_an_exchange_and_hides_what_is_done_meanwhile(walk):
    """Published at 4, so that the value comes at 1304, however long the work between is; then 4 clocks are left."""
    spans = walk("""
        SHFL.BFLY PT, R2, R2, 0x1, 0x1f | 4 w1
        STG.E.STRONG.GPU [R8.64], R2 | 0
        MUFU.RSQ R5, R5 | 2 w0
        FADD R5, R5, R5 | 4 b0
        .L_0:
        LDG.E.STRONG.GPU R4, [R8.64] | 1 w0
        ISETP.NE.AND P0, PT, R4, -0x1, PT | 13 b0
        @P0 BRA `(.L_1) | 5
        NANOSLEEP 0x20 | 5
        BRA `(.L_0) | 5
        .L_1:
        FADD R6, R4, R4 | 4
        STG.E.STRONG.GPU [R8.64], R6 | 1
        EXIT | 5
    """)
    hidden = [span for span in spans if span.hidden]
    assert sum(sum(span.clocks.values()) for span in hidden) == pytest.approx(1300 + 13 + 5, abs=1)
    assert all("poll" in span.clocks or span.issued < 5 for span in hidden)
    shown = chain(spans)
    assert sum(shown.all.values()) == 4 + 4 + 1 + 5 + 1, "its own instructions, and none of the wait's"


def test_tiles_by_hand():
    """The first one waits for more than others, and after the last one the stage goes on."""

    def span(event: str, clocks: float) -> Span:
        return Span("qkv", event, {"issue": clocks}, issued=10, l1_bytes=64 * (event == "tile"))

    found = chain([span("", 100), span("tile", 350), *[span("tile", 300)] * 3, span("", 6), span("tile", 400)])
    assert (found.before["issue"], found.turns, found.issued) == (100, 5, pytest.approx(40 / 3))
    assert found.turn["issue"] == pytest.approx((900 + 6) / 3)
    assert (found.first["issue"], found.after["issue"]) == (pytest.approx(48), pytest.approx(98))


def test_what_arrives_beside_a_matrix_takes_no_time_of_its_own(tiny):
    """A row is sent at 0 and its input, which L2 has, at 1; both are there at 1000. A product and the sum follow."""
    source = Composed(()).source(tiny)
    row = (1 << APART) + 2 * source.layout.weight("qkv", 0).offset
    lane = Lane({}, {})
    text = """
        LDG.E.64.CONSTANT R4, [R2.64] | 1 w0
        LDG.E R6, [R8.64] | 1 w1
        FFMA R7, R4, R6, R7 | 4 b01
        SHFL.BFLY PT, R3, R7, 0x10, 0x1f | 1 w0
        EXIT | 5 b0
    """
    lane.registers.update({"R2": row & MASK, "R3": row >> 32, "R8": 0, "R9": 3 << APART - 32})
    (found,) = summary(Walk(program(text), lane, Buffers(source, 5), LATENCY).spans(), 1).values()
    assert (found.turns, found.loaded, found.flight) == (1, 8, 8)
    assert found.after == {"issue": 4, "fixed": 3 + 4, "shuffle": 23}


COUNTED = """
extern "C" __global__ void decode(const float *weights, float *cache, float *scratch, const unsigned *state,
                                  unsigned *waits, int steps) {
  const auto publish = [=](float x) { asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(cache), "f"(x)); };
  const unsigned parts = gridDim.x, part = blockIdx.x;
  const int first = int((unsigned long long)(ROWS) * part / parts);
  const int rows = int((unsigned long long)(ROWS) * (part + 1) / parts) - first, odd = (ROWS + 7) % int(parts);
  float x = weights[threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < rows; ++i) publish(x = sqrtf(x));
#pragma unroll 1
  for (int i = state[0] / 3; i < odd; i += steps) publish(x += 1);
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_trip_counts_of_a_compiled_kernel(arch, tiny, seed):
    """Divisions of 64 and 32 bits by the number of blocks, a remainder, a word of the state, an argument."""
    random = Random(f"{seed} {arch}")
    rows, blocks, position = random.randrange(2000, 200000), random.randrange(3, 200), random.randrange(60)
    cubin = compile_cubin(COUNTED.replace("ROWS", str(rows)), arch)
    buffers = Buffers(Composed(()).source(tiny), position)
    lane = Lane(buffers.constants(cubin, "decode", blocks), dict.fromkeys(SPECIAL, 0))
    spans = Walk(Program.read(cubin, "decode", stage="qkv"), lane, buffers, LATENCY).spans()
    assert [span.event for span in spans].count("published") == rows // blocks + max(
        0, (rows + 7) % blocks - position // 3
    )


@pytest.mark.parametrize(
    ("names", "width", "arch"),
    [("vec128 redundant_rmsnorm", 16, "sm_80"), ("vec128", 16, "sm_75"), ("graph", 8, "sm_80")],
)
def test_turns_of_a_compiled_kernel_are_its_rows(names, width, arch, tiny, cpu_cache):
    """One kernel with stages by its callers, and a kernel for each stage. One row of 64 columns is one load."""
    blocks = 4
    found = chains(Composed(tuple(names.split())).source(tiny), arch, blocks, 1, LATENCY, cpu_cache / "cubins").stages
    assert set(LAYER) <= set(found)
    rows = {"qkv": tiny.query + 2 * tiny.kv, "o_proj": tiny.hidden, "down": tiny.hidden, "lm_head": tiny.vocab}
    for stage, count in rows.items():
        assert found[stage].turns == -(-count // (8 * blocks)), stage
    assert found["qkv"].flight == width
    assert found["attention"].before["memory"] > 1000, "the value is loaded after the key is used"


# Clocks of a tile of 16 KB in `streaming` on an H200 by an audit that was made apart, from dependences in the SASS,
# with HMMA 33 (ptxas lets the warp stall for 24): one tile a turn, and two.
AUDIT = {1: 374, 2: 478 / 2}
AUDIT_LATENCY = LATENCY | {
    "shared": 34,
    "special": 23,
    "phase": 26,
    "barrier": 30,
    "l2": 456,
    "memory": 1140,
    "poll": 1520,
}


@pytest.mark.parametrize(("tiles", "clocks"), sampled(AUDIT.items(), 1))
def test_clocks_of_a_tile_within_15_percent_of_an_audit(tiles, clocks, cpu_cache):
    model = replace(model_named("qwen3_0_6b"), positions=64)
    source = Composed(CATALOG.stacks["streaming"].variants, {"tiles": tiles}).source(model)
    found = chains(source, "sm_90", 132, 0, AUDIT_LATENCY, cpu_cache / "cubins").stages
    assert sum(found["gate_up"].turn.values()) == pytest.approx(clocks, rel=0.15)
    # A slot holds 4 of the 23 rows of gate and up, and 8 of the 1,151 of the head.
    assert {stage: found[stage].turns for stage in ("gate_up", "lm_head")} == {"gate_up": 6, "lm_head": 144}
    if tiles == 1:  # Hazy Research's kernel, which is like it, multiplies 45 bytes a clock: conf/design/hazy.yaml.
        assert 16384 / sum(found["lm_head"].turn.values()) == pytest.approx(45, rel=0.1)


def test_tiles_that_are_waited_for_together_are_turns_of_one_group():
    """Pairs of 10 + 90 clocks for 2 tiles, a last single one of 60: 50 a tile, and 10 to the end."""
    pair = [Span("qkv", "tile", {"issue": 10.0}), Span("qkv", "tile", {"shared": 90.0}, l1_bytes=64)]
    single = Span("qkv", "tile", {"issue": 10.0, "shared": 50.0}, l1_bytes=32)
    found = chain([Span("qkv", "", {"poll": 7.0}), *pair, *pair, *pair, single])
    assert (found.turns, found.turn, found.first) == (7, {"issue": 5.0, "shared": 45.0}, {})
    assert (found.after, found.l1_bytes) == ({"issue": 5.0, "shared": 5.0}, 32.0)
