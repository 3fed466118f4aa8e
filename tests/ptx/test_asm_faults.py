"""The lists of faults have one in each function of asm.cuh, and each kind of call that orders left out."""

import re

from asm_text import INLINE, functions

from tests.strength.mutants.generated import generate
from tests.strength.mutants.mutation import read_mutants


def test_every_function_of_inline_ptx_has_a_fault_in_its_text():
    faults = [mutant for mutant in read_mutants() if mutant.area == "asm"]
    assert {name.partition("(")[0] for name in functions(INLINE)} <= {mutant.kind for mutant in faults}


def test_every_kind_of_call_that_orders_is_left_out():
    dropped = [one.edits[0].old for one in generate() if one.kind == "synchronization dropped"]
    ordering = {name.partition("(")[0] for name in functions(INLINE)} & {
        *("block_barrier", "named_sync", "named_arrive", "fence_acq_rel", "fence_proxy_async", "copy_commit"),
        *("copy_wait", "mbarrier_init", "mbarrier_init_fence", "mbarrier_arrive", "mbarrier_arrive_expect"),
    }
    assert len(ordering) == 11
    assert ordering <= {name for old in dropped for name in re.findall(r"\w+", old)}
