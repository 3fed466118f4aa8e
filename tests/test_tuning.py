"""The search of experiment=tune, on the virtual costs of the stand-in: a space, an optimum known by hand, and traps."""

import random
import sys

import pytest
from standin import installed
from virtual_seconds import every_candidate

from common.devices.counters import Counts
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.tuning.search import Outcome, Search
from experiments.tuning.space import Candidate, Space, order

pytestmark = pytest.mark.covers

SPACE = ("fused_head", "head_split", "redundant_rmsnorm", "smem_cache", "split_kv", "vec128")
BLOCKS = 132


def space(*variants: str, fixed=False, threads=256, **given) -> Space:
    catalog = read_catalog()
    return Space(catalog, order(catalog, variants), threads, fixed, given)


@pytest.fixture(scope="module")
def seconds():
    """seconds(candidate) on the stand-in, of counts made up so that two variants rival each other and one is a loss.

    fused_head is a loss with its usual knob, and a gain with one row a warp.
    """
    with installed():
        from standin_gpu.cost import decoded

        def seconds_(candidate: Candidate) -> float:
            has, values = set(candidate.variants), candidate.values
            wide = "vec128" in has
            layer = 8 - 2 * ("redundant_rmsnorm" in has) - 2 * ("head_split" in has)
            chunk = abs(values.get("chunk", 128).bit_length() - 8)
            counts = {
                "grid_barriers": 28 * layer + 3 - 2 * ("fused_head" in has),
                "atomics": 1_000 * values.get("rows_per_warp", 0),
                "block_barriers": 100 * BLOCKS * (chunk + ("smem_cache" in has)),
                "weights_128bit" if wide else "weights_64bit": 100_000_000,
                "kv_32bit": 150_000_000 * ("split_kv" not in has),
            }
            return decoded(Counts({"embed": counts}).total, BLOCKS)

        yield seconds_


def search(where: Space, seed: int, seconds, most: int, wrong=()) -> Search:
    """A search to its end; candidates with a variant of `wrong` have no time."""
    made = Search(where, seed, [], ahead=2)
    for candidate in made.candidates(most):
        time = None if set(candidate.variants) & set(wrong) else seconds(candidate)
        made.tell(candidate, Outcome(time, time, time, "failed" if time is None else ""))
    return made


def test_the_space_has_every_legal_stack_and_no_other():
    found = every_candidate(space("head_split", "split_kv", "vec128", chunk=64))
    assert {candidate.variants for candidate in found} == {
        (), ("head_split",), ("split_kv",), ("vec128",), ("head_split", "vec128"), ("split_kv", "vec128"),
    }  # fmt: skip
    assert len(found) == 3 * (1 + 2)
    assert space("productive_spin", "atomic_barrier").variants == ("atomic_barrier", "productive_spin")
    found = every_candidate(space("atomic_barrier", "productive_spin", spin_bytes=128))
    stacks = {candidate.variants for candidate in found}
    assert stacks == {(), ("atomic_barrier",), ("atomic_barrier", "productive_spin")}


def test_a_variant_is_added_with_all_that_it_needs(seed):
    """value_token needs by_value, which needs joint_heads."""
    where, generator = space(*read_catalog().variants), random.Random(seed)
    found = {where.candidate(where.beside(Candidate((), ()), generator)).variants for _ in range(2000)}
    assert {stack[-1] for stack in found if stack} == {*where.variants}
    assert ("joint_heads", "by_value", "value_token") in found


def test_values_of_knobs_are_those_that_the_knob_takes(seed):
    every = [name for name in read_catalog().variants if name != "baseline"]
    for threads in (128, 256):
        one, generator = space(*every, threads=threads), random.Random(seed)
        for parameter in one.parameters:
            if parameter.knob:
                (knob,) = (k for k in one.catalog.variants[parameter.variant].knobs if k.name == parameter.knob)
                for value in parameter.values:
                    knob.constants(list(value) if isinstance(value, tuple) else value, threads)
        for _ in range(50):
            candidate = one.candidate(one.any(generator))
            assert one.candidate(one.point(candidate)) == candidate
    ratio = next(one for one in space("warp_split", threads=128).parameters if one.knob)
    assert ratio.values == ("0:4", "1:3", "2:2", "3:1")


def test_a_fixed_stack_keeps_its_variants():
    one = space("vec128", "split_kv", fixed=True)
    found = every_candidate(one)
    assert {candidate.variants for candidate in found} == {("vec128", "split_kv")}
    assert len(found) == 2 * len(next(p for p in one.parameters if p.knob == "chunk").values)


def test_the_same_candidate_is_never_tried_twice_and_the_search_ends(seed, seconds):
    one = space("vec128", "fused_head")
    found = search(one, seed, seconds, 1000).found
    assert set(found) == set(every_candidate(one))
    assert len(found) == 3 * 5


def test_the_optimum_is_found_in_a_tenth_of_the_space(seed, seconds):
    one = space(*SPACE)
    every = every_candidate(one)
    best = min(map(seconds, every))
    stack = ("fused_head", "redundant_rmsnorm", "split_kv", "vec128")
    by_hand = Candidate(stack, (("rows_per_warp", 1), ("chunk", 128), ("l1", "default")))
    assert seconds(by_hand) == best
    found = search(one, seed, seconds, len(every) // 10)
    assert found.best[1].seconds == best
    assert len(found.found) <= len(every) / 10


def test_a_wrong_variant_never_wins_though_it_would_be_the_fastest(seed, seconds):
    one = space(*SPACE)
    every = every_candidate(one)
    right = min(seconds(candidate) for candidate in every if "vec128" not in candidate.variants)
    assert right > min(map(seconds, every))
    found = search(one, seed, seconds, len(every) // 5, wrong=("vec128",))
    assert found.best[1].seconds == right


def test_a_time_that_is_not_exact_does_not_win(seed):
    one = space("fused_head", rows_per_warp=4)
    made = Search(one, seed, [])
    for candidate in made.candidates(2):
        made.tell(candidate, Outcome(1.0, 1.0, 1.0, "stopped") if candidate.variants else Outcome(2.0, 2.0, 2.0))
    assert made.best[0].variants == ()


def test_without_optuna_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(LabError, match=r"a search needs optuna, which is not installed; pip install -e '.\[tune\]'"):
        Search(space("vec128"), 0, [])
