"""The lists of faults have one in each function of the port, and each kind of call that orders left out."""

import re

from port_text import PORT, functions

from tests.strength.mutants.generated import generate
from tests.strength.mutants.mutation import edited, read_mutants


def test_every_function_of_the_port_has_a_fault_in_its_text():
    port = [mutant for mutant in read_mutants() if mutant.area == "port"]
    assert {name.partition("(")[0] for name in functions(PORT)} <= {mutant.kind for mutant in port}
    assert all(edited(PORT, mutant) != PORT for mutant in port)


def test_every_kind_of_call_that_orders_is_left_out():
    dropped = [one.edits[0].old for one in generate() if one.kind == "synchronization dropped"]
    ordering = {name.partition("(")[0] for name in functions(PORT)} & {
        *("block_barrier", "warp_barrier", "named_sync", "named_arrive", "fence", "fence_proxy_async", "copy_commit"),
        *("copy_wait", "mbarrier_init", "mbarrier_init_fence", "mbarrier_arrive", "mbarrier_arrive_expect"),
    }
    assert len(ordering) == 12
    assert ordering <= {name for old in dropped for name in re.findall(r"port::(\w+)", old)}
