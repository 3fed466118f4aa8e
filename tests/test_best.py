"""`variant=best`: the fastest stack on this GPU by the committed records, else the documented default."""

import re
from functools import partial

import pytest
from temporary_root import add, make_root
from whole_rows import RUN

import experiments.run.choice
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks

GPU = "GPU of this test"
BEST = "selects: best\ndefault: both\n"


def row(stack, seconds, verdict="FASTER"):
    """A record of a run in the form of experiments/run/steps.py; `seconds` at position 1."""
    fetched = {"how": "ldg", "matrices_o": 1, "matrices_gate": 0, "matrices_down": 1, "bytes": 128}
    knobs = {"warp_split": {"producers": 3, "consumers": 5}, "lazy": {}, "prefetch": fetched}
    latency = {
        "stack": [], "position": 1, "steps": 20, "seconds": {"median": seconds, "low": seconds, "high": seconds},
        "samples": [seconds], "bytes_per_step": 1e9, "bandwidth": 1e12, "of_ceiling": 0.5, "verdict": verdict,
    }  # fmt: skip
    far = latency | {"position": 16384, "seconds": {"median": 1e-9, "low": 1e-9, "high": 1e-9}, "verdict": "FASTER"}
    return RUN | {
        "variant": "+".join(stack) or "baseline",
        "stack": stack,
        "knobs": {name: knobs[name] for name in stack if name in knobs},
        "model": RUN["model"] | {"name": "qwen3_0_6b"},
        "device": {"device": "cuda", "gpu": GPU, "compiler": "NVRTC 13.0"},
        "latencies": [far, latency],
    }


@pytest.fixture
def best(tmp_path, monkeypatch):
    """best(rows, gpu=, **given): the stack that `variant=best` selects from these records."""
    root = make_root(tmp_path)
    add(root, "best", BEST, header="")

    def choose(rows, gpu=GPU, threads=256, **given):
        def find():
            if gpu is None:
                raise LabError("no GPU", "use device=ptx")
            return gpu

        monkeypatch.setattr(experiments.run.choice, "find_gpu", find)
        for number, one in enumerate(rows):
            Store(root / "experiments" / "results" / f"{number}.jsonl").append(one)
        read_catalog.cache_clear()
        catalog = read_catalog(root)
        fastest = partial(experiments.run.choice.fastest_stack, catalog, threads)
        (stack,) = choose_stacks(catalog, "best", None, given, threads, fastest)
        return stack

    return choose


def test_without_records_the_default_is_selected(best):
    assert best([]).name == "both"


def test_without_a_gpu_the_default_is_selected(best):
    assert best([row(["lazy"], 1e-3)], gpu=None).name == "both"


def test_the_fastest_stack_is_selected_with_its_knobs(best):
    stack = best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3), row([], 3e-3)])
    assert (stack.name, stack.variants) == ("warp_split", ("warp_split",))
    assert stack.knobs["warp_split"] == {"producers": 3, "consumers": 5}


def test_a_knob_of_this_run_overrides_that_of_the_record(best):
    assert best([row(["warp_split"], 1e-3)], ratio="1:7").knobs["warp_split"] == {"producers": 1, "consumers": 7}


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "bandwidth"},
        {"status": "MISMATCH"},
        {"device": {"device": "cuda", "gpu": "another"}},
        {"device": {"device": "ptx"}},
        {"model": {"name": "tiny"}},
        {"threads": 512},
        {"stack": ["gone"], "variant": "gone", "knobs": {"gone": {}}},
        {"stack": ["warp_split"], "knobs": {"warp_split": {"speed": 3}}},
        {"latencies": []},
    ],
    ids=str,
)
def test_records_that_must_be_ignored(best, changed):
    assert best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3) | changed]).name == "lazy"


@pytest.mark.parametrize("verdict", ["UNSTABLE", "IMPLAUSIBLE"])
def test_a_latency_whose_interval_is_too_wide_is_ignored(best, verdict):
    assert best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3, verdict)]).name == "lazy"


def test_the_baseline_may_be_the_fastest(best):
    assert best([row([], 1e-3, verdict=None), row(["lazy"], 2e-3)]).variants == ()


def test_the_shipped_default_can_be_composed(monkeypatch):
    monkeypatch.setattr(experiments.run.choice, "measured_on", lambda *_: [])
    (stack,) = choose_stacks(read_catalog(), "best", None, {}, 256)
    assert stack.name == read_catalog().selections["best"].default
    assert len(stack.variants) > 1


def test_a_leave_one_out_is_not_a_stack_of_its_own(best):
    """`both - lazy` of an ablation is the kernel of `both` beside another parent: not what variant=best stands for."""
    other = row(["warp_split", "prefetch"], 1e-3) | {"variant": "both - prefetch", "parent": ["warp_split"]}
    assert best([row(["lazy"], 2e-3), other]).name == "lazy"


def test_a_stack_beside_another_parent_than_its_own_is_not_taken(best):
    assert best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3) | {"parent": ["lazy"]}]).name == "lazy"


def test_latencies_of_another_cache_are_not_compared(best):
    """The size with which more stacks were timed."""
    long = row(["lazy"], 1e-3)
    long |= {"model": long["model"] | {"positions": 16448}}
    assert best([long, row(["warp_split"], 2e-3), row([], 3e-3)]).name == "warp_split"


FOUND = """\
idea: what a search found
stack: [warp_split]
knobs: {ratio: "1:7"}
tuned: {gpu: GPU of this test, model: qwen3_0_6b, position: 1, threads: 256}
"""


def test_what_a_search_found_for_this_gpu_goes_before_records(best, tmp_path):
    add(tmp_path, "tuned_here", FOUND, header="")
    stack = best([row(["lazy"], 1e-3)])
    assert (stack.name, stack.variants) == ("tuned_here", ("warp_split",))
    catalog = read_catalog(tmp_path)
    assert choose_stacks(catalog, "tuned_here", None, {}, 256) == (stack,)
    assert "tuned_here" not in catalog.stacks  # another block size: nothing that takes all stacks could run
    assert stack.knobs["warp_split"] == {"producers": 1, "consumers": 7}


@pytest.mark.parametrize(
    "other", ["gpu: another", "model: tiny", "position: 200", "threads: 512"], ids=lambda other: other.split(":")[0]
)
def test_what_a_search_found_for_something_else_is_not_taken(best, tmp_path, other):
    field = other.split(":")[0]
    add(tmp_path, "tuned_here", re.sub(rf"{field}: [^,}}]+(?=[,}}][^{{]*$)", other, FOUND), header="")
    assert best([row(["lazy"], 1e-3)]).name == "lazy"
