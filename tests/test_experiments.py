"""Arithmetic of the experiments, against cases worked by hand."""

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sampled import sampled

from common import ROOT
from common.compile.nvrtc import ARCHS, compile_cubin
from common.compile.sass import resources
from common.compile.source import build
from common.devices.counters import Counts
from common.display.table import cell
from common.errors import Crashed, LabError, known
from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.experiment import Experiment
from experiments.run.counting import key
from experiments.run.steps import LabStack
from experiments.suite import answer, counts, find, names, sync_cost
from experiments.suite.quality import compare
from experiments.suite.sass import difference
from experiments.suite.sync_cost import OPERATION, grids, kernel
from experiments.tables.progress import Quiet
from experiments.tables.result_table import COUNTED, ResultTable, print_result, record_result
from experiments.timing.rounds import MECHANISMS, Rounds

pytestmark = pytest.mark.covers


def test_counts_of_a_record_are_zero_where_it_says_nothing():
    counts = Counts({"qkv": {"by_value": 5, "of a later version": 1}, "argmax": {"by_value": 2, "kept": 7}})
    assert [counts.total(field) for field in ("by_value", "kept", "atomics")] == [7, 7, 0]
    assert [counts.of(stage, "by_value") for stage in ("qkv", "argmax", "down")] == [5, 2, 0]


def test_counts_are_known_by_code_and_grid_but_not_by_comments(tiny: Model):
    source = build([], tiny)
    again = SimpleNamespace(text=f"// a word\n{source.text}", launch=source.launch)
    assert key(source, 8) == key(again, 8)
    assert key(source, 8) != key(source, 9)
    assert key(source, 8) != key(build([], tiny, threads=128), 8)


def test_quality_by_hand():
    """Half and half against three quarters and a quarter: KL = (ln 2/3 + ln 2) / 2."""
    truth, got = torch.zeros(2, 2), torch.tensor([[math.log(3), 0.0]] * 2)
    found = compare(truth, got, [0, 0])
    assert found["mean KL"] == pytest.approx((math.log(2 / 3) + math.log(2)) / 2)
    assert found["perplexity"] == pytest.approx(4 / 3)
    assert found["transformers' perplexity"] == pytest.approx(2)
    assert compare(truth, got, [0, 1])["perplexity"] == pytest.approx(4)
    assert compare(got, got, [0, 1])["max KL"] == 0


def test_sass_difference_names_the_largest_change_first():
    own, parent = Counter({"LDG.E.128": 8, "FFMA": 100}), Counter({"LDG.E.64": 20, "FFMA": 100})
    assert difference(own, parent) == [("LDG.E.64", -20), ("LDG.E.128", 8)]


def test_grids_grow_by_two_up_to_all():
    assert grids(1) == [1]
    assert grids(8) == [1, 2, 4, 8]
    assert grids(82) == [1, 2, 4, 8, 16, 32, 64, 82]


def test_a_result_becomes_a_record_without_nan(tmp_path: Path, capsys):
    rows = [{"variant": "a", "us": 1.5, "n": np.int64(3)}, {"variant": "b", "us": float("nan"), "n": 4}]
    result = ResultTable("some", "what?", rows, COUNTED, ["read it so"], "time")
    store = Store(tmp_path / "r.jsonl")
    record_result(result, store, {"seed": 1})
    record = store.records()[0]
    assert record["table"] == [{"variant": "a", "us": 1.5, "n": 3}, {"variant": "b", "us": None, "n": 4}]
    assert (record["kind"], record["notes"], record["needs_gpu"]) == ("some", ["read it so"], "time")
    assert record["columns"] == ["variant", "us", "n"]
    assert record["provenance"]["command"]
    assert [cell(None), cell(12345), cell(12345.6), cell(0.123456)] == ["-", "12,345", "12,346", "0.1235"]
    print_result(ResultTable("some", "what?", [{"perplexity": math.inf}], COUNTED), as_json=True)
    assert capsys.readouterr().out == '{"perplexity": "Infinity"}\n', "JSON has no infinity"


def test_an_error_of_an_experiments_module_is_one_line_with_its_place(configured, monkeypatch, tmp_path):
    config = configured("experiment=counts", f"results={tmp_path}/r.jsonl", "variant=vec128")
    lines = Path(counts.__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "experiment.rows(experiment.chosen" in text)
    monkeypatch.setattr(Experiment, "chosen", lambda experiment: 1 / 0)
    with pytest.raises(LabError, match=f"^experiments/suite/counts.py:{line}: ZeroDivisionError: division by zero; "):
        answer(config)
    monkeypatch.setattr(counts, "ask", lambda experiment: None)
    with pytest.raises(LabError, match=r"counts.py: AttributeError: 'NoneType' object has no attribute 'rows'; "):
        answer(config)


@pytest.mark.parametrize(
    ("name", "given", "remedy"),
    [
        ("roofline", "variant=graph", "leave it out"),
        ("tune", "stack=[vec128,fused_head]", "give options.variants=[NAME]"),
        ("sync_cost", "variant=graph", "leave it out"),
    ],
)
def test_a_choice_of_stacks_that_an_experiment_does_not_read_is_refused(configured, tmp_path, name, given, remedy):
    config = configured(f"experiment={name}", "archs=[sm_90]", f"results={tmp_path}/r.jsonl", given)
    with pytest.raises(LabError) as refused:
        find(name)(Experiment(config, Quiet()))
    assert str(refused.value) == f"variant= or stack= has no effect on experiment={name}; {remedy}"


@pytest.mark.parametrize("name", ["ablation", "counts", "positions", "quality", "rivals", "roofline", "sass"])
def test_stacks_of_the_run_and_of_the_options_are_both_taken(configured, tmp_path, name):
    where = (f"experiment={name}", f"results={tmp_path}/r.jsonl", "variant=graph")
    for options, wanted in (((), ["graph"]), (("options.variants=[vec128,vec128]",), ["vec128"])):
        chosen = Experiment(configured(*where, *options), Quiet()).chosen()
        assert [stack.name for stack in chosen] == wanted


def test_a_stack_without_a_text_costs_only_its_row(configured, monkeypatch, tmp_path):
    """Such as one whose scratch has a size that no layout takes."""
    experiment = Experiment(configured("experiment=quality", "model=tiny", f"results={tmp_path}/r.jsonl"), Quiet())
    monkeypatch.setattr(Experiment, "source", lambda _, stack: known("text", stack.name, ["smem_cache"]))
    monkeypatch.setattr(LabStack, "session", lambda own: own.setup.source(own.stack) and SimpleNamespace(close=list))
    stacks = map(experiment.stack, ("vec128", "smem_cache"))
    assert experiment.session_rows([*stacks], lambda session: {"us": 1.0}) == [{"variant": "smem_cache", "us": 1.0}]
    assert experiment.left_out == ["Not run: vec128 l1=default: unknown text 'vec128'; known: smem_cache"]


def test_rows_that_are_left_out_are_named_beside_json_lines(configured, monkeypatch, tmp_path, capsys):
    def ask(experiment):
        experiment.left_out.append("Left out: b: why")
        return ResultTable("counts", "?", [{"variant": "a"}], COUNTED)

    monkeypatch.setattr(counts, "ask", ask)
    assert answer(configured("experiment=counts", f"results={tmp_path}/r.jsonl", "json=true", "model=tiny")) == 0
    out, error = capsys.readouterr()
    assert out == '{"variant": "a"}\n'
    assert error.endswith("Left out: b: why\n")


def test_every_experiment_has_a_yaml_whose_header_runs_it():
    folder = ROOT / "conf" / "experiment"
    for name in names():
        text = (folder / f"{name}.yaml").read_text()
        assert f"# Run   python -m experiments experiment={name}" in text, name
        assert f"task: {name}\n" in text, name
    with pytest.raises(LabError, match="unknown"):
        find("ablatoin")


@pytest.mark.parametrize("operation", OPERATION, ids=lambda operation: operation.barrier)
def test_barriers_compile_for_a_gpu(operation):
    cubin = compile_cubin(kernel(operation, 256).text, "sm_90", "sync_cost.cu")
    found = resources(cubin, "sm_90")
    assert found.spill_bytes == 0
    assert (found.count("LD", "STRONG") + found.count("LDG", "STRONG") > 0) == (operation.barrier != "Nothing")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_exchanges_of_sync_cost_have_no_fence_where_values_are_polled(mechanism):
    for kb, window in ((0, 0), (48, 2)):
        source = Rounds(mechanism, 1024, 132, kb, window).source(read_catalog(), 256, 56)
        for arch in sampled(ARCHS, 1):
            found = resources(compile_cubin(source.text, arch), arch)
            assert found.spill_bytes == 0
            assert (found.count("MEMBAR", "ALL", "GPU") == 0) == (mechanism == "by value"), arch


def test_a_word_that_was_lost_is_a_crash():
    """The last of 128 words is one less than it should be: 8 rounds."""
    source = Rounds("by value", 128, 3).source(read_catalog(), 256, 8)
    scratch, at = torch.zeros(source.layout.scratch_size), source.layout.tap("gate_up", 7)
    scratch[at.offset : at.offset + 128] = 8
    sync_cost._counted(source, SimpleNamespace(scratch=lambda: scratch))
    scratch[at.offset + 127] = 7
    with pytest.raises(Crashed, match="words of the last round: 7 in place of 8; run it again"):
        sync_cost._counted(source, SimpleNamespace(scratch=lambda: scratch))


def test_what_a_tile_of_the_ring_cannot_hold_is_no_round():
    assert Rounds("by value", 512, 132, 48, 2).columns == 3168  # 132 times 48 KB over two matrices of 512 rows of bf16
    for words, blocks, kb in ((256, 132, 48), (4096, 2, 1)):
        with pytest.raises(LabError, match="a tile of the ring takes 16 to 8,192; give more or fewer words"):
            Rounds("by value", words, blocks, kb, 2).source(read_catalog(), 256, 8)
