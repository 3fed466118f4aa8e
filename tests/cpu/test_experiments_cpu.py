"""Experiments in a quick form on a CPU."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.compile.source import build
from common.model.shapes import Model
from common.record.store import Store
from experiments.__main__ import main
from experiments.run.counting import Counting
from experiments.suite import names, sass

pytestmark = [pytest.mark.cpu, pytest.mark.covers]
QUICK = {
    "ablation": ["options.variants=[vec128]", "options.best=vec128"],
    "counts": ["options.variants=[vec128]"],
    "positions": ["variant=vec128", "format=int4:32"],
    "quality": ["options.variants=[vec128]", "options.tokens=5"],
    "rivals": ["variant=vec128", "options.tokens=4", "options.positions=[1,9]", "model.positions=64"],
    "roofline": [],
    "sass": ["options.variants=[vec128]", "archs=[sm_90]"],
    "sync_cost": ["options.cpu_blocks=3", "options.words=[64]", "options.windows=[2]", "options.round_kb=4"],
}


@pytest.fixture
def run(cpu_cache: Path, tmp_path: Path, capsys, seed) -> Callable[..., dict[str, Any]]:
    """run(experiment, *overrides): run it on `tiny`, check that it prints its result, and return its record."""

    def run(experiment: str, *overrides: str) -> dict[str, Any]:
        results = tmp_path / "records.jsonl"
        common = ["device=ptx", f"cache={cpu_cache}", f"results={results}", f"seed={seed}"]
        assert main([f"experiment={experiment}", "model=tiny", *common, *overrides]) == 0, capsys.readouterr().err
        record = [row for row in Store(results).records() if row["kind"] == experiment][-1]
        assert record["table"]
        assert record["basis"] in ("counted", "estimated")
        assert bool(record["needs_gpu"]) == (experiment not in ("counts", "quality", "sass"))
        if "json=true" not in overrides:
            shown = capsys.readouterr().out
            assert record["question"] in shown
            assert (record["needs_gpu"] or "") in shown
        return record

    return run


def test_counts_of_a_stack_and_of_its_parent_are_kept(run, tmp_path):
    (row,) = run("counts", *QUICK["counts"])["table"]
    kept = {one["variant"]: one for one in Store(tmp_path / "records.jsonl").records() if one["kind"] == "count"}
    assert row["grid barriers"] == 8 * 2 + 3
    assert [*kept] == ["baseline", "vec128"]


def test_the_others_say_in_one_line_that_they_need_a_gpu(cpu_cache: Path, tmp_path: Path, capsys):
    results = tmp_path / "records.jsonl"
    for name in sorted({*names()} - {*QUICK}):
        argv = [f"experiment={name}", "device=ptx", "model=tiny", "model.positions=256", f"results={results}"]
        assert main([*argv, f"cache={cpu_cache}"]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"error: experiment={name} measures GPU time, and device=ptx has none; run it "), error
    assert Store(results).records() == []


def test_json_prints_the_rows_of_roofline_with_the_bytes_of_each_stage_by_hand(run, capsys):
    """2 layers, 4 and 2 heads of 32, 64 by 160, 503 ids, in bf16; positions 0 and 1 of the cache are read."""
    table = run("roofline", "json=true")["table"]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == table
    gains = {"input_norm": 2 * 64, "qk_norm_rope": 2 * (32 + 32), "post_norm": 2 * 64, "final_norm": 64}
    layers = {"qkv": 64 * (128 + 64 + 64), "attention": 2 * (64 + 64), "o_proj": 128 * 64, "gate_up": 2 * 64 * 160}
    want = {"embed": 64, **gains, **{name: 2 * size for name, size in (layers | {"down": 160 * 64}).items()}}
    want |= {"lm_head": 503 * 64, "argmax": 0}
    want["all stages"] = sum(want.values())
    assert {row["what"]: row["MB"] for row in table} == {name: pytest.approx(2e-6 * of) for name, of in want.items()}


def test_positions_say_what_a_token_reads(run):
    """Rows of int4 have a scale of 2 bytes for each 32 and are padded to 16; the head is bf16, as the cache is."""
    rows = run("positions", *QUICK["positions"], "options.positions=[1,10,1]")["table"]
    weights = 2 * (576 * 48 + 64 * 80 + 64 * 96) + 2 * 503 * 64  # bytes: rows of 64, of 128 and of 160 columns
    assert [row["GB"] for row in rows] == [(weights + 512 * 2) / 1e9, (weights + 512 * 11) / 1e9]


def test_every_block_arrives_at_every_barrier_of_sync_cost(run):
    """225 of them, each between two barriers of the block.

    Of eight rounds of an exchange each has a barrier of the block, and one is before the first. A barrier of the grid
    is between two more; values that are polled meet in one after the first round. Only the grid's barrier has atomics.
    """
    rows = run("sync_cost", *QUICK["sync_cost"])["table"]
    for row in rows[7:]:
        assert row["block barriers"] == 225 * 2 * row["blocks"] * (row["operation"] != "queued launch"), row
    assert [row["block barriers"] for row in rows[:7]] == [3 * count for count in (25, 25, 16, 9, 25, 25, 16)]
    assert [row["atomics"] for row in rows[:7]] == [24, 24, 0, 0, 24, 24, 0]
    assert [row["window"] for row in rows[:7]] == [None] * 3 + [2] * 4


def test_ablation_of_a_variant_that_adds_one_line(run):
    table = {row["variant"]: row for row in run("ablation", *QUICK["ablation"])["table"]}
    assert set(table) == {"vec128 l1=default", "vec128 - vec128"}
    row = table["vec128 l1=default"]
    assert row["grid barriers"] == 8 * 2 + 3
    assert row["published"] == "+3.5 % on RTX 3090"
    assert (row["more than parent"], row["exchanges by value"]) == (0, 0)
    barriers_and_launch = 19 * 0.8439 + 1.495
    assert barriers_and_launch < row["estimate us, H200"] < barriers_and_launch + 1, "and some KB"


def test_sass_of_vec128_has_wide_loads_of_all_but_heads(run):
    (row,) = run("sass", *QUICK["sass"])["table"]
    assert row["LDG.64"] == 4  # halves of the gains of two head norms
    assert row["LDG.128"] > 0
    assert row["parent"] == "baseline"


def test_a_text_is_read_once_for_an_arch(run, monkeypatch):
    first, read, inspect = run("sass", *QUICK["sass"])["table"], [], sass.inspect
    monkeypatch.setattr(sass, "inspect", lambda source, *given: read.append(source.name) or inspect(source, *given))
    assert run("sass", *QUICK["sass"])["table"] == first
    assert read == []
    (row,) = run("sass", *QUICK["sass"], "archs=[sm_80]")["table"]
    assert (row["arch"], read) == ("sm_80", ["vec128", "baseline"])


def test_roofline_on_a_cpu_has_no_ceiling(run):
    record = run("roofline")
    assert {row["kind"] for row in record["table"]} == {"stage", "step"}
    assert "ceiling" not in " ".join(record["notes"])


@pytest.mark.parametrize("name", ["vec128", "speculative"])  # which steps by four tokens: four ids, and one with drafts
def test_quality_of_a_correct_kernel_is_better_than_bf16(name, run):
    bf16, ours = run("quality", f"options.variants=[{name}]", "options.tokens=5")["table"]
    assert ours["mean KL"] < bf16["mean KL"]
    assert ours["mean KL"] < 1e-3


def test_quality_of_formats_has_the_order_of_their_bits(run):
    formats = "options.formats=[int8,int8/int8,int4:32,int4]"
    table = {row["variant"]: row["mean KL"] for row in run("quality", *QUICK["quality"], formats)["table"]}
    names = ("int8", "int8/int8", "int4:32")
    assert (
        0 < table[f"transformers, {names[0]}"] < table[f"transformers, {names[1]}"] < table[f"transformers, {names[2]}"]
    )
    assert table["transformers, int4"] > table["transformers, int8/int8"]


def test_engines_decode_the_same_ids(run, seed):
    """All store bf16, as the reference does; engines in float32 may differ from it where two logits nearly tie."""
    names = json.dumps(["torch", "torch in a CUDA graph", "transformers"])
    record = run("rivals", *QUICK["rivals"], f"options.rivals={names}")
    table = {row["system"]: row for row in record["table"]}
    assert table["this lab: vec128 l1=default"]["same ids"] == "8 of 8", f"seed {seed}"
    assert "needs a GPU" in table["torch in a CUDA graph"]["state"], "no graph was made"
    assert table["torch"]["same ids"] == table["transformers"]["same ids"], f"seed {seed}"
    assert not [column for column in record["columns"] if "tok/s" in column or "ms" in column]
    assert all(row["settings"] and row["also does"] for row in table.values())


UNFIT = {
    "options.rivals=[other]": "unknown rival 'other'; known: Triton, torch, ",
    "format=int8": "arms read weights, keys and values in bf16; leave format=, head_format= and kv_format= out",
    "kv_format=fp8": "arms read weights, keys and values in bf16; leave format=, head_format= and kv_format= out",
}


@pytest.mark.parametrize("given", UNFIT)
def test_rivals_refuse_what_no_arm_can_do_before_anything_runs(given, cpu_cache: Path, tmp_path: Path, capsys):
    argv = ["experiment=rivals", "device=ptx", "model=tiny", "variant=vec128", *QUICK["rivals"][1:], given]
    assert main([*argv, f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl"]) == 2
    assert UNFIT[given] in capsys.readouterr().err
    assert not Store(tmp_path / "r.jsonl").records()


def test_a_stack_of_several_tokens_a_step_is_timed_by_those_it_made(cpu_cache: Path, tmp_path: Path, monkeypatch):
    from experiments.engines import race

    made, timed = [], race.timed
    monkeypatch.setattr(race, "timed", lambda *given: made.append(timed(*given)) or made[-1])
    options = [*QUICK["rivals"][1:], "variant=speculative", "options.rivals=[torch]", "seed=8"]
    argv = ["experiment=rivals", "device=ptx", "model=tiny", *options]
    assert main([*argv, f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl"]) == 0
    row, _ = Store(tmp_path / "r.jsonl").records()[-1]["table"]
    assert row["same ids"] == "8 of 8"
    assert max(len(run.ids) for ran in made for run in ran.runs) > 4, "no draft was accepted; take another seed"


def test_counts_are_stored_and_used_again(tiny: Model, cpu_cache: Path, tmp_path: Path):
    counted: list[tuple[str, int]] = []
    store = Store(tmp_path / "r.jsonl")
    source = build([], tiny)
    for _ in range(2):
        counting = Counting(tiny, 256, store, cpu_cache, lambda *what: counted.append(what))
        assert counting.count(source, 5).total("grid_barriers") == 8 * tiny.layers + 3
    assert counted == [("baseline", 5)]
    assert len(store.records()) == 1


@pytest.mark.parametrize(
    ("experiment", "override", "message"),
    [
        ("sass", "archs=[]", "archs=[] leaves nothing to read; name one"),
        ("energy", "options.seconds=-1", "options.seconds=-1 is not a positive number"),
        ("energy", "options.seconds=1.5", "is too short: a GPU's power is an average over 1 s; give options.seconds=2"),
        ("roofline", "options.variants=[vec128]", "options.variants has no effect on device=ptx; leave it out"),
        ("sync_cost", "options.cpu_blocks=0", "is not a whole number in 1..1024"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_recorded(experiment, override, message, tmp_path, capsys):
    results = tmp_path / "records.jsonl"
    assert main([f"experiment={experiment}", "device=ptx", "model=tiny", f"results={results}", override]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert Store(results).records() == []
