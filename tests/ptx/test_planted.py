"""Faults in the CUDA half of the port, and calls that order left out: the PTX device finds each, or no run can show it.

`make soak` tries all of them; a run of the tests a few.
"""

import re
from types import SimpleNamespace

import pytest
from port_text import CUDA, PORT, functions
from sampled import sampled

from common import ROOT
from tests.strength.mutants.__main__ import _on_ptx
from tests.strength.mutants.generated import known
from tests.strength.mutants.mutation import edited
from tests.strength.mutants.planted import RULE, SAME_CODE, SURVIVED, VALUE, Planted, check_planted, of_planted, planted

FAULTS = [one for one in planted() if not Planted(one, SURVIVED).equivalent]
CVTA = [one for one in FAULTS if one.kind == "shared_address"]


def test_every_function_of_the_port_has_a_fault_in_its_text():
    port = [one for one in planted() if one.area == "port"]
    assert {name.partition("(")[0] for name in functions(CUDA)} <= {one.kind for one in port}
    for one in port:
        assert edited(PORT, one) != PORT


def test_every_kind_of_call_that_orders_is_left_out():
    found = {match for one in planted() for match in re.findall(r"port::(\w+)", one.edits[0].old) if one.area != "port"}
    ordering = {name.partition("(")[0] for name in functions(CUDA)} & {
        *("block_barrier", "warp_barrier", "named_sync", "named_arrive", "fence", "fence_proxy_async", "copy_commit"),
        *("copy_wait", "mbarrier_init", "mbarrier_init_fence", "mbarrier_arrive", "mbarrier_arrive_expect"),
    }
    assert ordering <= found


def test_every_entry_of_the_list_is_of_some_fault_and_names_a_test_that_is_there():
    assert not [entry for entry in known("planted") if not any(map(entry.has, planted()))]
    for entry in known("planted"):
        assert all((ROOT / path).exists() for path in re.findall(r"tests/\S+\.py", entry.reason))


@pytest.mark.host
@pytest.mark.parametrize("fault", CVTA, ids=lambda fault: fault.name)
def test_an_address_of_another_window_is_found(fault, host_cache, seed):
    """A missing cvta, and a double one."""
    found = check_planted(fault, seed, host_cache)
    assert found.fate == RULE
    assert "outside shared memory" in found.how


@pytest.mark.host
@pytest.mark.parametrize("fault", sampled(FAULTS, 2), ids=lambda fault: f"{fault.kind}: {fault.name}")
def test_a_fault_is_found(fault, host_cache, seed):
    assert check_planted(fault, seed, host_cache).fate in (RULE, VALUE)


def test_the_table_counts_what_is_found_listed_and_missed():
    listed = next(one for one in planted() if one not in FAULTS)
    fates = [(FAULTS[0], RULE), (FAULTS[0], VALUE), (listed, SAME_CODE), (listed, RULE), (FAULTS[1], SURVIVED)]
    result = of_planted([Planted(one, fate) for one, fate in fates])
    total = {"class": "all", "planted": 5, "rule": 2, "value": 1, "equivalent": 2, "not as expected": 2}
    assert result.rows[-1] == total
    assert sum("not as expected" in note for note in result.notes) == 2


def test_a_fault_that_was_found_is_not_tried_again(tmp_path, monkeypatch):
    tried = []

    def check_each(check, lost, mutants, seed, cache, processes, done):
        tried.append(list(mutants))
        results = [Planted(one, VALUE if one is FAULTS[0] else SURVIVED) for one in mutants]
        for result in results:
            done(result)
        return results

    monkeypatch.setattr("tests.strength.mutants.__main__.check_each", check_each)
    first, second = (
        _on_ptx(FAULTS[:2], 2, SimpleNamespace(seed=each, cache=tmp_path, processes=1), lambda title: None)
        for each in (1, 2)  # `make soak` draws a new seed when it goes on
    )
    assert tried == [FAULTS[:2], FAULTS[1:2]]
    assert first == second
    assert not first[2]
