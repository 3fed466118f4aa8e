"""Calls that no access may pass, in the PTX of small kernels; a text of the port that lets one pass is seen."""

import re

import pytest
from port_text import PORT, bodies, instructions

from tests.strength.mutants.mutation import edited, read_mutants

GUARD, TILE = "__shared__ Mbarrier guard; ", "__shared__ uint4 tile[1]; "
CALLS = {
    "stamp": "port::stamp(wide);",
    "block_barrier": "port::block_barrier();",
    "named_sync": "port::named_sync(3, 96);",
    "named_arrive": "port::named_arrive(3, 96);",
    "warp_barrier": "port::warp_barrier();",
    "add_acq_rel": "port::add_acq_rel(word, 1);",
    "load_acquire": "port::load_acquire(word);",
    "store_release": "port::store_release(word, 1);",
    "max_relaxed": "port::max_relaxed(wide, 1);",
    "exchange_relaxed": "port::exchange_relaxed(wide, 1);",
    "add_relaxed": "port::add_relaxed(wide, 1);",
    "look_pair": "{ unsigned long long pair[2]; port::look_pair(wide, pair); }",
    "publish": "port::publish(value, 1);",
    "look": "port::look(value);",
    "fence": "port::fence();",
    "copy_async": "port::copy_async<16>(tile, wide);",
    "copy_commit": "port::copy_commit();",
    "copy_wait": "port::copy_wait<1>();",
    "mbarrier_init": "port::mbarrier_init(&guard, 7);",
    "mbarrier_init_fence": "port::mbarrier_init_fence();",
    "mbarrier_arrive": "port::mbarrier_arrive(&guard);",
    "mbarrier_arrive_expect": "port::mbarrier_arrive_expect(&guard, 64);",
    "mbarrier_arrive_copied": "port::mbarrier_arrive_copied(&guard);",
    "mbarrier_try_wait": "port::mbarrier_try_wait(&guard, 4);",
    "copy_bulk": "port::copy_bulk(tile, wide, 16, &guard);",
    "fence_proxy_async": "port::fence_proxy_async();",
    "thread_anew": "port::thread_anew();",
}
AGAIN = {"thread_anew"}  # it orders nothing, and is only to be read again in each call
LOAD, STORE = "ld.global.b32", "st.global.b32"
FAULTS = [one for one in read_mutants() if one.kind in CALLS and re.search(r"asm\(.*\)$", one.edits[0].new)]


def passed(port: str = PORT) -> set[str]:
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
    found = dict(zip(kernels, instructions(tuple(kernels.values()), port), strict=True))

    def wrong(name: str) -> bool:
        once = found[name, "once"]
        around = {"loads": [LOAD, *once, LOAD, STORE, STORE], "stores": [STORE, *once, STORE]}
        wanted = {"twice": [*once, *once], **(around if name not in AGAIN else {})}
        return any(found[name, kind] != want for kind, want in wanted.items()) or not once

    return {name for name in CALLS if wrong(name)}


def test_no_access_passes_a_call_and_none_is_merged():
    assert passed() == set()


def test_every_function_that_orders_accesses_is_tried():
    found = {name.partition("(")[0] for name, body in bodies(PORT).items() if '"memory"' in body or "__sync" in body}
    assert found == set(CALLS) - AGAIN


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_text_that_lets_one_pass_is_seen(fault):
    assert passed(edited(PORT, fault)) == {fault.kind}
