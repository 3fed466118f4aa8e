"""Experiments on measurements, with fake GPU records: each variant takes 100 us off 1,200."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.config.section import Section
from common.errors import LabError, Refused
from common.stacks.catalog import read_catalog
from experiments.experiment import Experiment
from experiments.suite import answer, find, roofline
from experiments.tables.progress import Progress
from experiments.tables.result_table import MEASURED

pytestmark = pytest.mark.covers


class Measured(Experiment):
    """An experiment with given GPU measurements."""

    on_gpu = True

    def measured_records(self, stacks, position=None) -> list[dict[str, Any]]:
        records = [self.record(stack) for stack in stacks]
        return records if position is None else [self.at(record, position) for record in records]

    def at(self, record: dict[str, Any], position: int) -> dict[str, Any]:
        return record | {"latencies": [entry | {"position": position} for entry in record["latencies"][:1]]}

    def record(self, stack) -> dict[str, Any]:
        latencies = [timed(stack, at) for at in self.config.timing.at(self.model)]
        return {"variant": stack.name, "status": "PASSED", "reason": "", "latencies": latencies}


class Faulty(Measured):
    """vec128 did not pass, and megaqwen is faster than the memory bandwidth allows."""

    def record(self, stack) -> dict[str, Any]:
        record = super().record(stack)
        if stack.name == "vec128":
            return record | {"status": "MISMATCH", "reason": "stage down, layer 3", "latencies": []}
        if stack.name == "megaqwen":
            record["latencies"] = [entry | {"verdict": "IMPLAUSIBLE"} for entry in record["latencies"]]
        return record


class Unsound(Measured):
    def record(self, stack) -> dict[str, Any]:
        return super().record(stack) | {"status": "MISMATCH", "reason": "stage down, layer 3", "latencies": []}


def timed(stack, position: int) -> dict[str, Any]:
    own, parent = (1.2e-3 - 1e-4 * len(variants) for variants in (stack.variants, stack.parent))
    pair = {"effect": own / parent - 1, "low": -1.0, "high": 0.0} if stack.variants != stack.parent else None
    return {
        "position": position,
        "seconds": {"median": own},
        "bandwidth": 1e12,
        "of_ceiling": 0.5,
        "verdict": pair and "FASTER",
        "comparison": pair,
    }


@pytest.fixture
def measured(configured, tmp_path: Path):
    """measured(name, *overrides): its table, as a list of rows."""

    def run(name: str, *overrides: str, kind: type[Experiment] = Measured, left_out=()) -> list[dict[str, Any]]:
        config = configured(f"experiment={name}", f"results={tmp_path}/r.jsonl", *overrides)
        experiment = kind(config, Progress((tmp_path / "progress").open("w")))
        result = find(name)(experiment)
        assert experiment.left_out == list(left_out)
        assert result.basis == MEASURED
        assert result.needs_gpu is None
        return result.lines

    return run


def test_ablation_takes_effect_and_verdict_from_the_record(measured):
    rows = measured("ablation", "options.variants=[baseline,vec128]", "timing.positions=[1,200]")
    assert [row["position"] for row in rows] == [1] * (len(rows) // 2) + [200] * (len(rows) // 2)
    table = {row["variant"]: row for row in rows}
    assert table["vec128 l1=default"]["us a step"] == pytest.approx(1100)
    assert table["vec128 l1=default"]["effect %"] == pytest.approx(100 * (1100 / 1200 - 1))
    assert table["vec128 l1=default"]["verdict"] == "FASTER"
    assert table["baseline"]["verdict"] == "-"
    assert table["megaqwen - vec128"]["parent"] == "redundant_rmsnorm + l2_prefetch"
    assert table["megaqwen - vec128"]["effect %"] == pytest.approx(100 * (900 / 1000 - 1))


def test_only_what_passed_and_is_plausible_enters_the_table(measured):
    lines = [
        "Left out: vec128, MISMATCH: stage down, layer 3",
        "Left out: megaqwen at position 1, IMPLAUSIBLE: 50 % of the read ceiling",
    ]
    table = measured("ablation", "options.variants=[baseline,vec128,megaqwen]", kind=Faulty, left_out=lines)
    names = [row["variant"] for row in table]
    assert names[0] == "baseline"
    assert not {"vec128", "vec128 l1=default", "megaqwen"} & set(names)


def test_a_stack_that_fails_costs_positions_its_own_columns(measured):
    line = "Left out: vec128, MISMATCH: stage down, layer 3"
    rows = measured("positions", "options.variants=[split_kv,vec128]", kind=Faulty, left_out=[line])
    assert {name for name in rows[0] if name.endswith(" us")} == {"baseline us", "split_kv us"}


@pytest.mark.parametrize("name", ["ablation", "positions"])
def test_where_nothing_passes_there_is_no_row_and_one_line_says_why(name, configured, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.suite.Experiment", Unsound)
    config = configured(f"experiment={name}", f"results={tmp_path}/r.jsonl")
    with pytest.raises(LabError, match=r"has no row: Left out: .*stage down, layer 3(, and \d+ more)?; see"):
        answer(config)


def test_positions_show_parent_and_variant(measured):
    rows = measured("positions")
    assert [row["position"] for row in rows] == [1, 10, 50, 100, 200, 300, 1024, 4096, 16384]
    for row in rows:
        assert (row["baseline us"], row["split_kv us"]) == (pytest.approx(1200), pytest.approx(1100))


def test_a_time_of_a_stack_is_measured_and_not_derived_from_the_effect_of_another(measured, monkeypatch):
    """That of vec128 was taken later, when all was slower; the baseline has no parent, and no effect."""
    slower = dict(zip(["baseline", "vec128"], [1.2e-3, 1.15e-3], strict=True))
    monkeypatch.setattr(Measured, "record", lambda self, stack, record=Measured.record: record(self, stack) | {
        "latencies": [timed(stack, 1) | {"seconds": {"median": slower[stack.name]}}]
    })  # fmt: skip
    row, *_ = measured("positions", "options.variants=[baseline,vec128]")
    assert (row["baseline us"], row["vec128 us"]) == (pytest.approx(1200), pytest.approx(1150))
    assert "baseline effect %" not in row


def test_positions_end_with_the_cache(measured):
    line = "Left out: positions [100, 200, 300, 1024, 4096, 16384]: model.positions is 100"
    rows = measured("positions", "model.positions=100", left_out=[line])
    assert [row["position"] for row in rows] == [1, 10, 50]


def test_a_variant_that_another_needs_is_left_out_of_no_stack(measured):
    """productive_spin waits at the barrier that atomic_barrier brings: alone it is no stack's rest."""
    rows = measured("ablation", "options.variants=[baseline]", "options.best=productive_spin")
    without = {row["variant"]: row["parent"] for row in rows if " - " in row["variant"]}
    assert without == {"productive_spin - productive_spin": "atomic_barrier"}


def test_a_variant_without_a_time_has_no_place_on_the_roofline(configured, tmp_path: Path):
    options = "options.variants=[vec128,fused_head]"
    config = configured("experiment=roofline", options, f"results={tmp_path}/r.jsonl")
    experiment = Faulty(config, Progress((tmp_path / "progress").open("w")))
    (row,) = roofline._variants(experiment, 1)
    assert row["what"] == "fused_head rows_per_warp=4"
    size = experiment.model.bytes_per_token(1)
    assert (row["us"], row["GB/s"]) == (pytest.approx(1100), pytest.approx(size / 1.1e-3 / 1e9))


def test_a_grid_that_is_refused_is_a_row_that_says_why():
    """One SM has room for one block of each operation."""

    def session(program, weights, blocks: int) -> SimpleNamespace:
        if blocks > 1:
            raise Refused(f"a grid of {blocks} blocks cannot be co-resident", "use blocks=1")
        counts = {"block_barriers": 450, "atomics": 450}
        steps = {"reset": lambda ids, position: None, "close": lambda: None}
        return SimpleNamespace(count=lambda steps: SimpleNamespace(total=counts.get), **steps)

    experiment = SimpleNamespace(
        on_gpu=False,
        check_given=lambda stacks: None,
        device=SimpleNamespace(compile=lambda source: source, session=session),
        options=Section({"cpu_blocks": 2, "words": 64, "windows": 2, "round_kb": 4}),
        catalog=read_catalog(),
        config=SimpleNamespace(threads=256, task="sync_cost"),
        row=lambda name, work, source: work(),
        answer=lambda question, rows, *given, **more: SimpleNamespace(rows=rows),
    )
    table = find("sync_cost")(experiment).rows
    assert [row["blocks"] for row in table] == [2] * 7 + [1] * 3 + [2] * 3
    assert {row["block barriers"] for row in table[7:10]} == {450}
    assert {row["why not"] for row in table[:7] + table[10:]} == {"a grid of 2 blocks cannot be co-resident"}


@pytest.mark.parametrize("task", ["ablations", "__init__"])
def test_a_task_that_is_no_experiment_is_refused(task):
    with pytest.raises(LabError, match=rf"unknown module of experiments/suite '{task}'.* known: ablation, counts"):
        find(task)


def test_timing_cannot_be_left_out(measured):
    class Untimed(Measured):
        measured_records = Experiment.measured_records

    with pytest.raises(LabError, match="timing=none"):
        measured("positions", "timing=none", kind=Untimed)
