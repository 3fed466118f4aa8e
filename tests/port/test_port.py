"""The CUDA half of port.cuh against its meaning: PTX by the ISA on every arch, and the order of accesses in SASS.

Nothing else looks at that half without a GPU: the host device executes its own.
"""

import random
import re
from pathlib import Path

import pytest
from port_faults import CHANGED
from port_rows import ROWS, SINCOS_TURNS
from port_table import FENCES, wrong
from port_text import CUDA, HOST, PORT, bodies, functions, macros, text

from common.compile import sass
from common.compile.nvrtc import ARCHS, compile_cubin

# What one thread does, and the instructions in their order: opcode and modifiers that it has at least.
ORDERED = {
    "const unsigned x = port::load_acquire(word), y = *data; *first = x; *second = y;": (
        "LD.STRONG.GPU, CCTL.IVALL, LD, ST, ST"
    ),
    "*data = 1; port::store_release(word, 2); *data = 3;": "ST, MEMBAR.ALL.GPU, ST.STRONG.GPU, ST",
    "*data = 1; const unsigned x = port::add_acq_rel(word, 1), y = *data; *first = x; *second = y;": (
        "ST, MEMBAR.ALL.GPU, ATOMG.ADD.STRONG.GPU, CCTL.IVALL, LD, ST, ST"
    ),
    "*data = 1; port::block_barrier(); *second = *data;": "ST, BAR.SYNC, LD, ST",
    "*data = 1; port::named_sync(3, 96); *second = *data;": "ST, BAR.SYNC, LD, ST",
    "*data = 1; port::named_arrive(3, 96); *second = *data;": "ST, BAR.ARV, LD, ST",
    "__shared__ uint4 tile[1]; port::copy_async<16>(tile, wide); port::copy_commit(); port::copy_wait<0>();"
    "*second = tile[0].x;": "LDGSTS.128, LDGDEPBAR, DEPBAR, LDS, ST",
    "*data = 1; port::spin_pause(); *first = port::load_acquire(word);": "ST, NANOSLEEP, LD.STRONG.GPU, CCTL.IVALL, ST",
    "*data = 1; port::trap();": "ST, MEMBAR.SC.SYS, CCTL.IVALL, BPT",
}
OLD, NEW = ("test_wait",), ("try_wait", "%2, 1000;", "fence.mbarrier_init", "fence.proxy.async.shared")  # than sm_90
ORDERING = re.compile(r"LDG?|STG?|LDS|STS|LDGSTS|ATOMG|CCTL|MEMBAR|BAR|DEPBAR|LDGDEPBAR|NANOSLEEP|BPT")


@pytest.mark.parametrize("arch", ARCHS)
def test_every_function_is_what_the_table_says(arch):
    assert wrong(arch) == {}


@pytest.mark.parametrize(("function", "text", "other"), CHANGED, ids=[name.split("(")[0] for name, *_ in CHANGED])
def test_the_table_finds_a_fault(function, text, other, seed):
    assert PORT.count(text) == 1
    seen = [arch for arch in ARCHS if (int(arch.removeprefix("sm_")) >= 90) is not any(word in text for word in OLD)]
    archs = seen if any(word in text for word in (*OLD, *NEW)) else ARCHS
    assert function in wrong(random.Random(seed).choice(archs), PORT.replace(text, other), only=function)


def test_every_function_has_a_row_and_a_fault():
    assert {row.function for row in ROWS} | {SINCOS_TURNS} == set(functions(CUDA))
    assert {function for function, *_ in CHANGED} >= set(functions(CUDA))


def test_every_function_that_orders_accesses_is_among_those_that_none_may_pass():
    assert {name for name, body in bodies(CUDA).items() if '"memory"' in body or "__sync" in body} == set(FENCES)


def test_both_halves_declare_the_same():
    assert functions(CUDA) == functions(HOST)
    own = {"SHARED_BYTES": "(Kernel)"}, {"HOST_ENTRY": "(Kernel, Threads, call)", "PLACED": ""}
    assert macros(CUDA) | own[1] == macros(HOST) | own[0]


@pytest.fixture(scope="module")
def listings(tmp_path_factory):
    """listings(arch, port): the instructions that access or order memory, of each kernel of ORDERED."""
    cache: Path = tmp_path_factory.mktemp("cubins")

    def listings_(arch: str, port: str = PORT) -> list[list[str]]:
        takes = "unsigned *first, unsigned *second, unsigned *data, unsigned *word, const uint4 *wide"
        kernels = [f'extern "C" __global__ void order_{at}({takes}) {{ {body} }}' for at, body in enumerate(ORDERED)]
        cubin = compile_cubin(text("\n".join(kernels), port), arch)
        listed = [sass.sass(cubin, f"order_{at}", cache) for at in range(len(kernels))]
        return [
            [name for _, _, name in sass.instructions(each) if ORDERING.fullmatch(name.split(".")[0])]
            for each in listed
        ]

    return listings_


def instruction(name: str) -> tuple[str, set[str]]:
    opcode, *modifiers = name.split(".")
    return {"LDG": "LD", "STG": "ST"}.get(opcode, opcode), set(modifiers)


def in_order(found: list[str], wanted: str) -> bool:
    got, want = [instruction(each) for each in found], [instruction(each) for each in wanted.split(", ")]
    return [opcode for opcode, _ in got] == [opcode for opcode, _ in want] and all(
        asked <= has and ("STRONG" in has) == ("STRONG" in asked)
        for (_, has), (_, asked) in zip(got, want, strict=True)
    )


@pytest.mark.parametrize("arch", ARCHS)
def test_accesses_stay_on_their_side_in_sass(arch, listings):
    for body, found in zip(ORDERED, listings(arch), strict=True):
        assert in_order(found, ORDERED[body]), (body, found)


def test_a_weaker_order_is_seen_in_sass(listings):
    weak = PORT
    for strong in ("ld.acquire.gpu", "st.release.gpu", "atom.add.acq_rel"):
        assert strong in weak
        weak = weak.replace(strong, re.sub("acquire|release|acq_rel", "relaxed", strong))
    pairs = list(zip(ORDERED.values(), listings("sm_90", weak), strict=True))
    assert [in_order(found, wanted) for wanted, found in pairs[:3]] == [False, False, False]
