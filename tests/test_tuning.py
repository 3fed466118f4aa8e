"""The search of experiment=tune, on the virtual costs of the stand-in: a space, an optimum known by hand, and traps."""

import random

import numpy as np
import pytest
from standin import installed

from common.devices.counters import FIELDS, Counts
from common.model.stages import STAGES
from common.stacks.catalog import read_catalog
from experiments.tuning.search import Outcome, Search
from experiments.tuning.space import Candidate, Space, order
from experiments.tuning.strategies import strategy

SEARCHED = ("fused_head", "head_split", "l2_prefetch", "multi_step", "redundant_rmsnorm", "split_kv", "vec128")
BLOCKS = 132


def space(*variants: str, fixed=False, threads=256, **given) -> Space:
    catalog = read_catalog()
    return Space(catalog, order(catalog, variants or SEARCHED), threads, fixed, given)


@pytest.fixture(scope="module")
def seconds():
    """seconds(candidate): of Qwen3-0.6B on the stand-in. Each effect is a count that the variant's header claims."""
    with installed():
        from standin_gpu.cost import decoded

        def seconds_(candidate: Candidate) -> float:
            has, values = set(candidate.variants), candidate.values
            wide = "vec128" in has
            layer = 8 - 2 * ("redundant_rmsnorm" in has) - 2 * ("head_split" in has)
            table = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
            table[0, FIELDS.index("grid_barriers")] = 28 * layer + 3 - 2 * ("fused_head" in has)
            table[0, FIELDS.index("atomics")] = 1_000 * values.get("rows_per_warp", 0)
            chunk = abs(values.get("chunk", 128).bit_length() - 8)
            table[0, FIELDS.index("block_barriers")] = 100 * BLOCKS * (chunk + ("smem_cache" in has))
            table[0, FIELDS.index("weights_128bit" if wide else "weights_64bit")] = 100_000_000
            waste = abs(values.get("prefetch_bytes", 32768).bit_length() - 16) + 4 - len(values.get("matrices", "1234"))
            table[0, FIELDS.index("kv_32bit")] = 1_000_000 * waste + 150_000_000 * ("split_kv" not in has)
            return decoded(Counts(table), BLOCKS) - 2e-6 + 2e-6 / values.get("steps", 1)

        yield seconds_


def search(where: Space, name: str, seed: int, seconds, most: int, wrong=(), starts=(), local=True) -> Search:
    """A search to its end; candidates with a variant of `wrong` have no time."""
    made = Search(where, strategy(name, where, seed), random.Random(seed), list(starts), local, ahead=2)
    for candidate in made.candidates(most):
        time = None if set(candidate.variants) & set(wrong) else seconds(candidate)
        made.tell(candidate, Outcome(time, time, time, "failed" if time is None else ""))
    return made


def test_the_space_has_every_legal_stack_once_and_no_other():
    one = space("head_split", "split_kv", "vec128", chunk=64)
    assert {candidate.variants for candidate in one} == {
        (), ("head_split",), ("split_kv",), ("vec128",), ("head_split", "vec128"), ("split_kv", "vec128"),
    }  # fmt: skip
    assert len(list(one)) == len(set(one)) == one.size == 3 * (1 + 2)
    assert space("productive_spin", "atomic_barrier").variants == ("atomic_barrier", "productive_spin")
    stacks = {candidate.variants for candidate in space("atomic_barrier", "productive_spin", spin_bytes=128)}
    assert stacks == {(), ("atomic_barrier",), ("atomic_barrier", "productive_spin")}


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
    assert {candidate.variants for candidate in one} == {("vec128", "split_kv")}
    assert one.size == 2 * len(next(p for p in one.parameters if p.knob == "chunk").values)


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_the_same_candidate_is_never_tried_twice_and_the_search_ends(name, seed, seconds):
    one = space("vec128", "fused_head", "redundant_rmsnorm")
    found = search(one, name, seed, seconds, 1000).found
    assert len(found) == one.size == 2 * 3 * 5


def test_tpe_finds_the_optimum_in_a_tenth_of_the_space(seed, seconds):
    one = space("fused_head", "head_split", "redundant_rmsnorm", "smem_cache", "split_kv", "vec128")
    best = min(map(seconds, one))
    by_hand = Candidate(
        ("fused_head", "redundant_rmsnorm", "split_kv", "vec128"),
        (("rows_per_warp", 1), ("chunk", 128), ("l1", "default")),
    )
    assert seconds(by_hand) == best
    found = search(one, "tpe", seed, seconds, one.size // 10)
    assert found.best[1].seconds == best
    assert len(found.found) <= one.size / 10
