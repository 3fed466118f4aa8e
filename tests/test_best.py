"""`variant=best`: the fastest stack on this GPU by the committed records, else the documented default."""

from functools import partial

import pytest
from temporary_root import add, make_root
from whole_rows import RUN

import common.config.best
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks

GPU = "GPU of this test"
BEST = "name: best\nselects: best\ndefault: both\n"


def row(stack, seconds, verdict="FASTER"):
    """A record of a run in the form of experiments/run/steps.py; `seconds` at position 1."""
    knobs = {"warp_split": {"producers": 3, "consumers": 5}, "lazy": {}}
    latency = {"position": 1, "seconds": {"median": seconds}, "verdict": verdict}
    far = {"position": 16384, "seconds": {"median": 1e-9}, "verdict": "FASTER"}
    return RUN | {
        "variant": "+".join(stack),
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
    add(root, BEST, header="")

    def choose(rows, gpu=GPU, threads=256, **given):
        def find():
            if gpu is None:
                raise LabError("no GPU", "use device=host")
            return gpu

        monkeypatch.setattr(common.config.best, "find_gpu", find)
        for number, one in enumerate(rows):
            Store(root / "experiments" / "results" / f"{number}.jsonl").append(one)
        read_catalog.cache_clear()
        catalog = read_catalog(root)
        fastest = partial(common.config.best.fastest_stack, catalog, threads)
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
        {"device": {"device": "host"}},
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
    monkeypatch.setattr(common.config.best, "measured_on", lambda *_: [])
    (stack,) = choose_stacks(read_catalog(), "best", None, {}, 256)
    assert stack.name == read_catalog().selections["best"].default
    assert len(stack.variants) > 1
