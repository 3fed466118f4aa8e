"""Calls that no access may pass, in the PTX of small kernels; a text of asm.cuh that lets one pass is seen."""

import re

import pytest
from asm_text import ASM, INLINE, bodies, instructions

from tests.strength.mutants.mutation import edited, read_mutants

GUARD, TILE = "__shared__ Mbarrier guard; ", "__shared__ uint4 tile[1]; "
CALLS = {
    "global_timer": "*wide = global_timer();",
    "block_barrier": "block_barrier();",
    "named_sync": "named_sync(3, 96);",
    "named_arrive": "named_arrive(3, 96);",
    "add_acq_rel": "add_acq_rel(word, 1);",
    "load_acquire": "load_acquire(word);",
    "store_release": "store_release(word, 1);",
    "max_relaxed": "max_relaxed(wide, 1);",
    "exchange_relaxed": "exchange_relaxed(wide, 1);",
    "add_relaxed": "add_relaxed(wide, 1);",
    "load_relaxed_pair": "{ unsigned long long pair[2]; load_relaxed_pair(wide, pair); }",
    "store_relaxed": "store_relaxed(value, 1);",
    "load_relaxed": "load_relaxed(value);",
    "fence_acq_rel": "fence_acq_rel();",
    "copy_async": "copy_async<16>(tile, wide);",
    "copy_commit": "copy_commit();",
    "copy_wait": "copy_wait<1>();",
    "mbarrier_init": "mbarrier_init(&guard, 7);",
    "mbarrier_init_fence": "mbarrier_init_fence();",
    "mbarrier_arrive": "mbarrier_arrive(&guard);",
    "mbarrier_arrive_expect": "mbarrier_arrive_expect(&guard, 64);",
    "mbarrier_arrive_copied": "mbarrier_arrive_copied(&guard);",
    "mbarrier_try_wait": "mbarrier_try_wait(&guard, 4);",
    "copy_bulk": "copy_bulk(tile, wide, 16, &guard);",
    "fence_proxy_async": "fence_proxy_async();",
    "await_previous": "await_previous();",
    "launch_next": "launch_next();",
    "thread_anew": "thread_anew();",
}
AGAIN = {"thread_anew"}  # it orders nothing, and is only to be read again in each call
LOAD, STORE = "ld.global.b32", "st.global.b32"
FAULTS = [one for one in read_mutants() if one.kind in CALLS and re.search(r"asm\(.*\)$", one.edits[0].new)]


def passed(asm: str = ASM) -> set[str]:
    """Calls that an access has passed, or that occur once in place of twice."""
    kernels = {
        (name, kind): GUARD + TILE + body
        for name, call in CALLS.items()
        for kind, body in (
            ("once", call),
            ("twice", call + call),
            ("loads", f"const unsigned x = *data; {call} const unsigned y = *data; *first = x; *second = y;"),
            ("stores", f"*data = 1; {call} *data = 2;"),
        )
    }
    found = dict(zip(kernels, instructions(tuple(kernels.values()), asm), strict=True))

    def wrong(name: str) -> bool:
        once = found[name, "once"]
        around = {"loads": [LOAD, *once, LOAD, STORE, STORE], "stores": [STORE, *once, STORE]}
        wanted = {"twice": [*once, *once], **(around if name not in AGAIN else {})}
        return any(found[name, kind] != want for kind, want in wanted.items()) or not once

    return {name for name in CALLS if wrong(name)}


def test_no_access_passes_a_call_and_none_is_merged():
    assert passed() == set()


def test_every_function_that_orders_accesses_is_tried():
    found = {name.partition("(")[0] for name, body in bodies(INLINE).items() if '"memory"' in body or "__sync" in body}
    assert found == set(CALLS) - AGAIN


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_text_that_lets_one_pass_is_seen(fault):
    assert passed(edited(ASM, fault)) == {fault.kind}
