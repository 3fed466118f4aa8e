"""Order of a thread's accesses in SASS, on every arch: without a GPU nothing executes what ptxas makes."""

import re
from pathlib import Path

import pytest
from asm_text import ASM, text

from common.compile import sass
from common.compile.nvrtc import ARCHS, compile_cubin

# What one thread does, and the instructions in their order: opcode and modifiers that it has at least.
ORDERED = {
    "const unsigned x = load_acquire(word), y = *data; *first = x; *second = y;": (
        "LD.STRONG.GPU, CCTL.IVALL, LD, ST, ST"
    ),
    "*data = 1; store_release(word, 2); *data = 3;": "ST, MEMBAR.ALL.GPU, ST.STRONG.GPU, ST",
    "*data = 1; const unsigned x = add_acq_rel(word, 1), y = *data; *first = x; *second = y;": (
        "ST, MEMBAR.ALL.GPU, ATOMG.ADD.STRONG.GPU, CCTL.IVALL, LD, ST, ST"
    ),
    "*data = 1; block_barrier(); *second = *data;": "ST, BAR.SYNC, LD, ST",
    "*data = 1; named_sync(3, 96); *second = *data;": "ST, BAR.SYNC, LD, ST",
    "*data = 1; named_arrive(3, 96); *second = *data;": "ST, BAR.ARV, LD, ST",
    "__shared__ uint4 tile[1]; copy_async<16>(tile, wide); copy_commit(); copy_wait<0>();"
    "*second = tile[0].x;": "LDGSTS.128, LDGDEPBAR, DEPBAR, LDS, ST",
    "*data = 1; __nanosleep(32); *first = load_acquire(word);": "ST, NANOSLEEP, LD.STRONG.GPU, CCTL.IVALL, ST",
    "*data = 1; trap();": "ST, MEMBAR.SC.SYS, CCTL.IVALL, BPT",
}
ORDERING = re.compile(r"LDG?|STG?|LDS|STS|LDGSTS|ATOMG|CCTL|MEMBAR|BAR|DEPBAR|LDGDEPBAR|NANOSLEEP|BPT")


@pytest.fixture(scope="module")
def listings(tmp_path_factory):
    """listings(arch, asm): the instructions that access or order memory, of each kernel of ORDERED."""
    cache: Path = tmp_path_factory.mktemp("cubins")

    def listings_(arch: str, asm: str = ASM) -> list[list[str]]:
        cubin = compile_cubin(text(ORDERED, asm), arch)
        listed = [sass.sass(cubin, f"kernel_{at}", cache) for at in range(len(ORDERED))]
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
        required <= has and ("STRONG" in has) == ("STRONG" in required)
        for (_, has), (_, required) in zip(got, want, strict=True)
    )


@pytest.mark.parametrize("arch", ARCHS)
def test_accesses_stay_on_their_side_in_sass(arch, listings):
    for body, found in zip(ORDERED, listings(arch), strict=True):
        assert in_order(found, ORDERED[body]), (body, found)


def test_a_weaker_order_is_seen_in_sass(listings):
    weak = ASM
    for strong in ("ld.acquire.gpu", "st.release.gpu", "atom.add.acq_rel"):
        assert strong in weak
        weak = weak.replace(strong, re.sub("acquire|release|acq_rel", "relaxed", strong))
    pairs = list(zip(ORDERED.values(), listings("sm_90", weak), strict=True))
    assert [in_order(found, wanted) for wanted, found in pairs[:3]] == [False, False, False]
