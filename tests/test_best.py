"""`variant=best`: the fastest stack that the committed records know of this GPU, else the documented default."""

import pytest
from temporary_root import add, make_root

import common.stack
from common.catalog import read_catalog
from common.errors import LabError
from common.records import Store
from common.stack import choose_stacks

GPU = "GPU of this test"
BEST = "\n  name: best\n  selects: best\n  default: both\n"


def row(stack, seconds, verdict="FASTER"):
    """A record of a run as experiments/run.py writes it, cut to what decides; `seconds` at position 1."""
    knobs = {"warp_split": {"producers": 3, "consumers": 5}, "lazy": {}}
    latency = {"position": 1, "seconds": {"median": seconds}, "verdict": verdict}
    far = {"position": 16384, "seconds": {"median": 1e-9}, "verdict": "FASTER"}
    return {
        "kind": "run",
        "status": "PASSED",
        "variant": "+".join(stack),
        "stack": stack,
        "parent": [],
        "knobs": {name: knobs[name] for name in stack if name in knobs},
        "threads": 256,
        "model": {"name": "qwen3_0_6b"},
        "device": {"device": "cuda", "gpu": GPU},
        "latencies": [far, latency],
    }


@pytest.fixture
def best(tmp_path, monkeypatch):
    """best(rows, gpu=, **given): the stack that `variant=best` stands for beside these records."""
    root = make_root(tmp_path)
    add(root, BEST, source=False)

    def choose(rows, gpu=GPU, threads=256, **given):
        def find():
            if gpu is None:
                raise LabError("no GPU", "use device=host")
            return gpu

        monkeypatch.setattr(common.stack, "find_gpu", find)
        for number, one in enumerate(rows):
            Store(root / "experiments" / "results" / f"{number}.jsonl").append(one)
        read_catalog.cache_clear()
        (stack,) = choose_stacks(read_catalog(root), "best", None, given, threads)
        return stack

    return choose


def test_without_records_the_default(best):
    assert best([]).name == "both"


def test_without_a_gpu_the_default(best):
    assert best([row(["lazy"], 1e-3)], gpu=None).name == "both"


def test_the_fastest_wins_with_its_knobs(best):
    stack = best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3), row([], 3e-3)])
    assert (stack.name, stack.variants) == ("warp_split", ("warp_split",))
    assert stack.knobs["warp_split"] == {"producers": 3, "consumers": 5}


def test_a_knob_of_this_run_comes_first(best):
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
def test_what_does_not_count(best, changed):
    assert best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3) | changed]).name == "lazy"


@pytest.mark.parametrize("verdict", ["UNSTABLE", "IMPLAUSIBLE"])
def test_a_figure_that_is_not_firm_does_not_count(best, verdict):
    assert best([row(["lazy"], 2e-3), row(["warp_split"], 1e-3, verdict)]).name == "lazy"


def test_the_baseline_may_be_the_fastest(best):
    assert best([row([], 1e-3, verdict=None), row(["lazy"], 2e-3)]).variants == ()


def test_the_shipped_default_can_be_composed(monkeypatch):
    monkeypatch.setattr(common.stack, "measured_on", lambda *_: [])
    (stack,) = choose_stacks(read_catalog(), "best", None, {}, 256)
    assert stack.name == read_catalog().selections["best"].default
    assert len(stack.variants) > 1
