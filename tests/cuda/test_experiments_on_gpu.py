"""Every experiment that needs a device, with the tiny model: stacks in processes of their own, answers as records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sampled import seed_for

from common.record.store import Store
from experiments.__main__ import main
from experiments.suite import energy, names, sync_cost

pytestmark = [pytest.mark.cuda, pytest.mark.covers]
WITHOUT_A_DEVICE = ("counts", "sass")  # their figures are the same with a GPU
HEAD = "fused_head rows_per_warp=4"  # a row names the knobs of its stack
ELSEWHERE = ("tune",)  # test_tune_on_gpu.py
SHORT = ["timing.rounds=8", "timing.max_rounds=8", "timing.steps=1", "timing.warmup=1", "timing.tokens=1"]
OPTIONS = {
    "ablation": ["options.variants=[fused_head]", "options.best=fused_head"],
    "positions": ["variant=fused_head", "options.positions=[1,40]"],
    "roofline": ["options.variants=[fused_head]"],
    "energy": ["variant=fused_head", "options.seconds=2"],
    "sync_cost": ["options.words=[64]", "options.windows=[1,2]", "options.round_kb=1"],
    "rivals": [
        "variant=fused_head",
        "options.tokens=3",
        "options.rivals=['torch','Triton']",
        "options.positions=[1,9]",
    ],
    "quality": ["options.variants=[fused_head]", "options.tokens=3"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("evidence") / "records.jsonl"


@pytest.fixture(scope="module")
def common(gpu, cpu_cache, store) -> list[str]:
    seed = seed_for("experiments on a GPU")
    blocks = ["blocks=3"] if gpu == "standin" else []  # its time grows with them
    where = [f"cache={cpu_cache}", f"results={store}", f"seed={seed}", "archs=[]"]
    return ["device=cuda", "validate=quick", "timeout_s=120", *SHORT, *where, *blocks]


@pytest.fixture
def ask(gpu, common, store, capsys, monkeypatch) -> Callable[[str], list[dict[str, Any]]]:
    """ask(experiment): its table, as a list of rows."""
    if gpu == "standin":  # which needs no half minute to settle
        monkeypatch.setattr(energy, "AVERAGE", 0.1)
        monkeypatch.setattr(energy, "SETTLE", 0.15)
        monkeypatch.setattr(sync_cost, "REPEATS", 2)
        monkeypatch.setitem(OPTIONS, "energy", ["variant=fused_head", "options.seconds=0.5"])

    def ask_(name: str) -> list[dict[str, Any]]:
        assert main([f"experiment={name}", "model=tiny", *common, *OPTIONS[name]]) == 0, capsys.readouterr().err
        record = [row for row in Store(store).records() if row["kind"] == name][-1]
        assert record["basis"] == "measured"
        return record["table"]

    return ask_


def test_each_experiment_that_needs_a_device_is_here():
    tasks = {name for name in names() if name not in (*WITHOUT_A_DEVICE, *ELSEWHERE)}
    assert tasks == set(OPTIONS)


def test_ablation_has_an_effect_for_every_variant_that_was_asked(ask, gpu):
    table = {row["variant"]: row for row in ask("ablation")}
    assert set(table) == {HEAD, "fused_head - fused_head"}
    for row in table.values():
        assert row["us a step"] > 0
        assert row["low %"] <= row["effect %"] <= row["high %"]
    if gpu == "standin":  # one barrier and one launch of argmax less
        assert table[HEAD]["effect %"] < -5
        assert table[HEAD]["verdict"] == "FASTER"


def test_positions_has_a_row_for_each_position(ask):
    rows = ask("positions")
    assert [row["position"] for row in rows] == [1, 40]
    assert all(row["fused_head us"] > 0 for row in rows)


def test_roofline_has_probes_and_variants_below_the_best_read_and_counts_nothing(ask, store):
    rows = ask("roofline")
    assert "count" not in {row["kind"] for row in Store(store).records()}
    assert len([row for row in rows if row["kind"] == "probe"]) == 2
    (variant,) = (row for row in rows if row["kind"] == "variant")
    assert 0 < variant["% of best read"] < 100


def test_energy_of_decoding_is_above_that_of_idling(ask):
    idle, decoding = ask("energy")
    assert idle["variant"] == "idle"
    assert decoding["average W"] > idle["average W"] > 0
    assert decoding["J/token"] * decoding["tokens/J"] == pytest.approx(1)


def test_sync_cost_of_every_operation_on_every_grid(ask, gpu):
    rows = ask("sync_cost")
    assert len({row["operation"] for row in rows}) == 4 + 1 + 3
    assert all(row["us"] > 0 for row in rows)
    for window in (1, 2):
        alone, *exchanges = [row for row in rows if row.get("window") == window]
        for row in exchanges:
            assert row["exposed us"] == pytest.approx(row["us"] - alone["us"])
    if gpu == "standin":
        assert {row["blocks"] for row in rows} == {1, 2, 4, 8}


def test_rivals_lose_their_own_row_only(ask, gpu):
    rows = {row["system"]: row for row in ask("rivals")}
    assert rows[f"this lab: {HEAD}"]["same ids"] == "6 of 6"
    assert rows[f"this lab: {HEAD}"]["tok/s at 9"] > 0
    if gpu == "real":
        assert rows["torch"]["state"] == rows["Triton"]["state"] == "ran"
    else:
        assert rows["Triton"]["state"].startswith("not run: Triton needs torch for CUDA to reach the GPU; ")


def test_quality_is_close_to_transformers(ask):
    table = {row["variant"]: row for row in ask("quality")}
    assert table[HEAD]["max KL"] < 0.01
