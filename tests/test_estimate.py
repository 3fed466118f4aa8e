"""Estimates: one worked by hand, their constants in the records, and what has no estimate."""

import json
import re
from dataclasses import replace

import pytest
from composed import Composed

from common import ROOT
from common.config.resolve import model_named
from common.devices.counters import Counts
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.estimate import GPUS, Step, estimate, read_gpu, step_of
from experiments.run.counting import Counting

H200 = read_gpu("h200")


@pytest.fixture
def committed(tmp_path) -> Counting:
    """Counts of the committed records, of Qwen3-0.6B with the short cache that they are made with."""
    model = replace(model_named("qwen3_0_6b"), positions=64)
    return Counting(model, 256, Store(tmp_path / "r.jsonl"), tmp_path, lambda *what: pytest.fail(f"{what} is counted"))


def test_an_estimate_by_hand():
    """A pencil: 4,522,000 B at 4,522 GB/s are 1 us; 10 barriers, 2 exchanges, half a launch."""
    step = Step(bytes=4_522_000, barriers=10, own=False, exchanges=2, launches=0.5)
    assert estimate(step, H200) == pytest.approx(1 + 8.439 + 1.8362 + 0.7475)
    own = Step(bytes=0, barriers=10, own=True, exchanges=0, nodes=228)
    assert estimate(own, H200) == pytest.approx(15.35 + 165.984)


def test_the_fast_kernel_by_hand(committed):
    """595,984,384 weights of 2 B and 2 positions of 114,688 B; 5 exchanges in 28 layers and 1; 8 tokens a launch."""
    source = Composed(read_catalog().stacks["streaming"].variants).source(committed.model)
    step = step_of(source, committed.count(source), committed.model, 1)
    assert step == Step(1_192_198_144, 0, False, 141, 0, 0.125)
    assert estimate(step, H200) == pytest.approx(263.64 + 129.45 + 0.19, abs=0.01)


def test_a_stack_of_kernels_has_a_node_or_a_launch_for_each_stage(tiny):
    """Eight stages in each of two layers, one before and three behind: 20."""
    graph, launches = (Composed(("graph",), {"how": how}).source(tiny) for how in ("graph", "launches"))
    assert (step_of(graph, Counts({}), tiny, 1).nodes, step_of(graph, Counts({}), tiny, 1).launches) == (20, 0)
    assert (step_of(launches, Counts({}), tiny, 1).nodes, step_of(launches, Counts({}), tiny, 1).launches) == (0, 20)
    with pytest.raises(LabError, match="nobody has measured what a launch with how=pdl costs; time it on a GPU"):
        step_of(Composed(("graph",), {"how": "pdl"}).source(tiny), Counts({}), tiny, 1)


def test_exchanges_by_value_take_the_place_of_barriers(committed):
    """By the committed counts, of 28 layers."""

    def total(field: str, *names: str) -> int:
        return committed.count(Composed(names).source(committed.model)).total(field)

    saved = total("grid_barriers", "joint_heads", "folded_norm") - total(
        "grid_barriers", "joint_heads", "folded_norm", "by_value"
    )
    assert total("by_value", "joint_heads", "folded_norm", "by_value") == saved == 140


@pytest.mark.parametrize("key", [path.stem for path in GPUS.glob("*.yaml")])
def test_each_measured_constant_is_in_the_record_that_its_comment_names(key):
    records = (ROOT / f"experiments/results/{key}.jsonl").read_text().splitlines()
    rows, gpu = {row["id"]: row for row in map(json.loads, records)}, read_gpu(key)
    lines = re.findall(r"^(\w+): ([\d.]+) # (\S+): (.+)$", (GPUS / f"{key}.yaml").read_text(), re.MULTILINE)
    assert {name for name, *_ in lines} == {*vars(gpu)} - {"name"}
    for name, value, record, what in lines:
        assert rows[record]["basis"] == "measured"
        assert gpu.name in rows[record]["provenance"]["gpu"]["name"]
        of_row = [row for row in rows[record]["table"] if what in (row.get("what"), row.get("operation"))]
        alone = [row for row in of_row if not (row.get("KB under way") or row.get("window"))]
        (row,) = [row for row in alone if row.get("blocks", 132) == 132 and row.get("words") in (None, 1024)]
        measured = row["GB/s"] if name == "read_gbps" else row["us"]
        assert float(value) == pytest.approx(measured, rel=1e-3), name


def test_a_gpu_that_nobody_has_measured_is_refused():
    with pytest.raises(LabError, match="unknown gpu 'h100'; did you mean 'h200'"):
        read_gpu("h100")
