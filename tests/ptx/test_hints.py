"""Instructions that no result shows, in the PTX of small kernels: hints for caches, pauses, clocks, launch bounds."""

import re

import pytest
from asm_text import ASM, instructions
from composed import Composed
from sampled import sampled

from common.compile.nvrtc import compile_ptx
from tests.strength.mutants.mutation import edited, read_mutants

BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint 16"
TILE, GUARD = "__shared__ uint4 tile[4]; ", "__shared__ Mbarrier guard; "
WORDS = " *first = p.word[0]; *second = p.word[1];"
STORES = ", st.global.b32, st.global.b32"
HINTS = {  # what a thread does, and the instructions that are more than computing
    "*wide = global_timer(); *wide = global_timer();": ", ".join(["mov.u64 %globaltimer, st.global.b64"] * 2),
    "*first = load_weights<4>(weights).word[0];": "ld.global.nc.b32, st.global.b32",
    "*first = load_packet<4>(wide).word[0];": "ld.global.b32, st.global.b32",
    f"auto p = load_weights<8>(weights);{WORDS}": f"ld.global.nc.v2.b32{STORES}",
    f"auto p = load_weights<16>(weights);{WORDS}": f"ld.global.nc.v4.b32{STORES}",
    f"auto p = load_weights<8, L1::no_allocate>(weights);{WORDS}": (f"ld.global.nc.L1::no_allocate.v2.b32{STORES}"),
    f"auto p = load_weights<16, L1::no_allocate>(weights);{WORDS}": (f"ld.global.nc.L1::no_allocate.v4.b32{STORES}"),
    f"auto p = load_packet<8>(wide);{WORDS}": f"ld.global.v2.b32{STORES}",
    "prefetch_l2(word);": "prefetch.global.L2",
    "prefetch_bulk(word, 16);": "cp.async.bulk.prefetch.L2.global 16",
    "touch_weights(word);": "ld.volatile.global.b32",
    "__nanosleep(32);": "nanosleep.u32 32",
    "store_relaxed(value, 1);": "st.relaxed.gpu.global.b32",
    "add_relaxed(wide, 1);": "red.relaxed.gpu.global.add.u64 1",
    "*data = 1; trap();": "st.global.b32, membar.sys, trap",
    TILE + "copy_async<16>(tile, wide);": "cp.async.cg.shared.global 16",  # not through L1: only for 16 bytes
    TILE + "copy_async<8>(tile, wide);": "cp.async.ca.shared.global 8",
    TILE + "copy_async(tile, wide, L2::pass);": (
        "createpolicy.fractional.L2::evict_first.b64 1.0, cp.async.cg.shared.global.L2::cache_hint 16"
    ),
    TILE + "copy_async(tile, wide, L2::keep);": (
        "createpolicy.fractional.L2::evict_last.b64 1.0, cp.async.cg.shared.global.L2::cache_hint 16"
    ),
    GUARD + "mbarrier_arrive_copied(&guard);": (
        "cp.async.mbarrier.arrive.shared::cta.b64, mbarrier.arrive.release.cta.shared::cta.b64"
    ),
    "copy_commit();": "cp.async.commit_group",
    "copy_wait<1>();": "cp.async.wait_group 1",
    "mbarrier_init_fence();": "fence.mbarrier_init.release.cluster, fence.proxy.async.shared::cta",
    GUARD + "*first = mbarrier_try_wait(&guard, *word);": (
        "ld.global.b32, mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 1000, st.global.b32"
    ),
    TILE + GUARD + "copy_bulk(tile, wide, 16, &guard);": (f"createpolicy.fractional.L2::evict_first.b64 1.0, {BULK}"),
    TILE + GUARD + "copy_bulk(tile, wide, 16, &guard, L2::keep);": (
        f"createpolicy.fractional.L2::evict_last.b64 1.0, {BULK}"
    ),
}
BOUNDS = {"atomic_barrier": {".maxntid 256", ".minnctapersm 1"}, "graph": {".maxntid 256"}}
FAULTS = [mutant for mutant in read_mutants() if "test_hints" in mutant.reason]


def hints(asm: str = ASM) -> dict[str, str]:
    """Instructions of each body of HINTS."""
    return dict(zip(HINTS, map(", ".join, instructions(tuple(HINTS), asm)), strict=True))


def bounds(source: str) -> set[str]:
    """Directives of a kernel's entries that limit its launches."""
    found = re.findall(r"^\.(maxntid|minnctapersm) (\d+)", compile_ptx(source, "sm_90"), re.MULTILINE)
    return {f".{name} {number}" for name, number in found}


def test_hints_are_those_of_the_text():
    assert hints() == HINTS


@pytest.mark.parametrize("name", BOUNDS)
def test_a_kernel_has_its_launch_bounds(name, tiny):
    assert bounds(Composed((name,)).source(tiny).text) == BOUNDS[name]


@pytest.mark.parametrize("fault", sampled(FAULTS, 4), ids=lambda fault: fault.name)
def test_a_fault_that_no_result_shows_is_seen(fault, tiny):
    if fault.kind.endswith("_ENTRY"):
        texts = {name: edited(Composed((name,)).source(tiny).text, fault) for name in BOUNDS}
        assert any(bounds(text) != BOUNDS[name] for name, text in texts.items())
    else:
        assert hints(edited(ASM, fault)) != HINTS
