"""Arithmetic of the experiments, against cases worked by hand."""

import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common import ROOT
from common.compile.nvrtc import compile_cubin
from common.compile.sass import resources
from common.compile.source import build
from common.devices.counters import FIELDS, Counts
from common.display.table import cell
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import STAGES
from common.record.store import Store
from common.stacks.catalog import variants
from experiments.experiment import Experiment, StepTime
from experiments.prediction import gpus
from experiments.prediction.model import grid_barriers
from experiments.prediction.predictor import as_counts, key
from experiments.prediction.published import errors
from experiments.suite import factorial, find, names
from experiments.suite.factorial import analysis, unseen
from experiments.suite.quality import compare
from experiments.suite.roofline import flops
from experiments.suite.sass import difference
from experiments.suite.sync_cost import OPERATION, grids, kernel
from experiments.tables.progress import Quiet
from experiments.tables.result_table import COUNTED, ResultTable, record_result
from experiments.timing.effects import interaction, main_effect, shapley, subsets

# a saves 10, b saves 20, both together 40: 10 more than the sum
TIMES = {frozenset(): 100.0, frozenset("a"): 90.0, frozenset("b"): 80.0, frozenset("ab"): 60.0}


def test_shapley_of_two_by_hand():
    """a first: 10 of 100, then b: 30; b first: 20, then a: 20."""
    assert shapley("ab", TIMES) == {"a": 15.0, "b": 25.0}
    assert main_effect("a", TIMES) == -15
    assert main_effect("b", TIMES) == -25
    assert interaction("a", "b", TIMES) == -10


def test_shapley_shares_sum_to_the_total(seed):
    random = np.random.default_rng(seed)
    chosen = "abcd"
    times = {frozenset(subset): float(random.uniform(1, 2)) for subset in subsets(chosen)}
    total = times[frozenset()] - times[frozenset(chosen)]
    assert sum(shapley(chosen, times).values()) == pytest.approx(total), f"seed {seed}"


def test_shapley_share_of_independent_variants_is_their_saving(seed):
    saves = dict(zip("abc", np.random.default_rng(seed).uniform(1, 2, 3), strict=True))
    times = {frozenset(subset): 10 - sum(saves[name] for name in subset) for subset in subsets("abc")}
    assert shapley("abc", times) == pytest.approx(saves), f"seed {seed}"
    assert interaction("a", "c", times) == pytest.approx(0), f"seed {seed}"


def test_shapley_uses_legal_orders_only():
    """b needs a, so the only order is a, b."""
    times = {have: time for have, time in TIMES.items() if have != frozenset("b")}
    assert shapley("ab", times) == {"a": 10.0, "b": 30.0}
    assert interaction("a", "b", times) is None
    assert shapley("ab", {frozenset(): 1.0, frozenset("ab"): 2.0}) == {}
    assert main_effect("a", {frozenset(): 1.0, frozenset("ab"): 2.0}) is None


def test_factorial_shares_are_percent_of_the_total_saving():
    shares = {row["variants"]: row for row in analysis(("a", "b"), TIMES) if row["kind"] == "share"}
    assert shares["a"]["share %"] == 37.5
    assert shares["b"]["share %"] == 62.5


def test_split_kv_adds_a_barrier_per_layer_after_its_first_chunk(tiny: Model):
    source = build([variants()["split_kv"]], tiny, knobs={"split_kv": {"chunk": 16}})
    counts = as_counts({"qkv": {"grid_barriers": 19}})
    assert grid_barriers(source, counts, 15) == 19
    assert grid_barriers(source, counts, 16) == 19 + tiny.layers


def test_counts_survive_their_record():
    values = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
    values[1, 2], values[-1, -1] = 5, 7
    assert (as_counts(json.loads(json.dumps(Counts(values).as_dict()))).table == values).all()


def test_counts_are_known_by_code_and_grid_but_not_by_comments(tiny: Model):
    source = build([], tiny)
    again = SimpleNamespace(text=f"// a word\n{source.text}", launch=source.launch)
    assert key(source, 8) == key(again, 8)
    assert key(source, 8) != key(source, 9)
    assert key(source, 8) != key(build([], tiny, threads=128), 8)


@pytest.mark.parametrize("name", gpus.names())
def test_every_gpu_is_described(name: str):
    found = gpus.read(name)
    assert 0.5 < found.read_efficiency < 1
    assert found.read_rate < 1e9 * found.bandwidth_gbps


def test_measured_constants_replace_assumed_ones():
    records = [
        {
            "kind": "roofline",
            "basis": "measured",
            "provenance": {"gpu": {"name": "NVIDIA H200"}},
            "table": [{"what": "read, 128-bit loads", "GB/s": 4560.0}],
        },
        {
            "kind": "sync_cost",
            "basis": "measured",
            "provenance": {"gpu": {"name": "NVIDIA H200"}},
            "table": [
                {"operation": "cooperative barrier", "blocks": 132, "us": 1.25},
                {"operation": "cooperative barrier", "blocks": 1, "us": 0.5},
                {"operation": "graph node", "blocks": 132, "us": 1.5},
                {"operation": "queued launch", "blocks": 132, "us": 1.75},
                {"operation": "launch", "blocks": 132, "us": 8.0},  # of older records: Python's own time
            ],
        },
    ]
    found = gpus.read("h200", records)
    assert (found.read_efficiency, found.barrier_us, found.node_us, found.launch_us) == (0.95, 1.25, 1.5, 1.75)
    assert found.measured == ("barrier_us", "launch_us", "node_us", "read_efficiency")
    assert gpus.read("h100", records) == gpus.read("h100")


def test_an_exchange_and_a_latency_are_learned_from_measured_loads():
    """132 SMs with 4 KB each and 924 GB/s wait 585 ns; with 192 KB and 4,500 GB/s 5,767 ns, 5,182 of them a queue."""
    windows = [{"kind": "window", "KB under way": size, "GB/s": rate} for size, rate in ((48, 4400.0), (4, 924.0))]
    loads = ((192, 2.7364, 4500.0), (0, 0.7, None), (48, 0.8, 4400.0))
    exchanges = [
        {"operation": "exchange by value", "blocks": 132, "KB under way": size, "us": us, "GB/s": rate}
        for size, us, rate in loads
    ]
    about = {"basis": "measured", "provenance": {"gpu": {"name": "NVIDIA H200"}}}
    records = [
        {"kind": "roofline", "table": [{"kind": "stage", "what": "qkv"}, *windows], **about},
        {"kind": "sync_cost", "table": [*exchanges, {"operation": "counted adds", "blocks": 132, "us": 9.0}], **about},
    ]
    found = gpus.read("h200", records)
    assert found.latency_ns == pytest.approx(585.14, abs=0.01)
    assert found.exchange_ns == 700
    assert found.queue_share == pytest.approx((2736.4 - 700) / (5767.2 - 585.14), abs=1e-4)
    assert found.measured == ("exchange_ns", "latency_ns", "queue_share")
    assert not set(found.measured) & set(found.ranges), "what is measured has no range"
    several = [{**row, "us": 10 * row["us"]} for row in exchanges]
    records[1] = {"kind": "sync_cost", "table": several, **about}
    assert gpus.read("h200", records).queue_share == 1, "an exchange waits for the whole queue at most"
    failed = [{**row, "us": None, "GB/s": None} for row in exchanges]
    assert gpus.read("h200", [{"kind": "sync_cost", "table": failed, **about}]) == gpus.read("h200")


def test_unknown_gpu_is_refused():
    with pytest.raises(LabError, match="rtx3090"):
        gpus.read("rtx3091")


def test_errors_of_a_prediction_are_listed_from_smallest_to_largest():
    rows = [{"gpu": "a", "stack": "b", "system": "c", "error %": off} for off in (None, -51.0, 250.0, 18.0)]
    (text,) = errors(rows, {"redundant_rmsnorm": (41.5, 44.0), "vec128": (0.0, 2.4), "cp_async": (2.5, 3.0)})
    assert text == (
        "Of 3 published gains of single optimizations the model meets 1; 3 published rates of 1 kernel are missed by "
        "-51 to +250 %, half of them by at most 51 %."
    )
    rows[2]["in range"] = "no"
    assert errors(rows, {})[0].endswith(
        "at most 51 %; without the 1 that no constants in their ranges give, by -51 to +18 %."
    )
    assert errors(rows[:1], {}) == []
    assert errors(rows, {})[0].startswith("3 published rates")


def test_a_variant_without_a_modelled_effect_has_no_prediction():
    blind = TIMES | {frozenset("c"): 100.0, frozenset("ac"): 90.0}
    assert unseen("c", blind)
    assert not unseen("a", blind)


def test_a_factorial_says_no_effect_of_a_variant_that_the_model_does_not_see(configured, tmp_path: Path, monkeypatch):
    """vec128 changes no time; fused_head takes 300 us off 1,200."""
    times = {(): 1200.0, ("vec128",): 1200.0, ("fused_head",): 900.0, ("vec128", "fused_head"): 900.0}
    monkeypatch.setattr(
        Experiment, "_predicted", lambda self, stack, gpu, positions: [StepTime(times[stack.variants], 1200.0)]
    )
    options = ("options.variants=[vec128,fused_head]", "options.position=1")
    config = configured("experiment=factorial", "model=tiny", *options, f"results={tmp_path}/r.jsonl")
    found = factorial.ask(Experiment(config, Quiet()))
    us = {(row["kind"], row["variants"]): row["us"] for row in found.lines}
    assert [time for (kind, _), time in us.items() if kind == "subset"] == list(times.values())
    assert (us["effect", "fused_head"], us["share", "fused_head"]) == (-300, 300)
    blind = [("effect", "vec128"), ("share", "vec128"), ("pair", "vec128 x fused_head")]
    assert all(us[row] is None for row in blind), us
    assert [note for note in found.notes if "not modelled" in note] == ["vec128: not modelled at this position."]


def test_flops_of_a_token_by_hand():
    """Two for each weight; and a key and a value of 8 elements for each of 2 heads, twice each, at every position."""
    shape = Model("s", 8, 16, 1, 2, 1, 8, 24, 64, 1e6, 1e-6, True)
    weights = 8 * 16 + 2 * 8 * 8 + 16 * 8 + 3 * 8 * 16 + 24 * 8
    assert flops(shape, 0) == 2 * weights + 4 * 16
    assert flops(shape, 9) - flops(shape, 0) == 4 * 16 * 9


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


def test_a_result_becomes_a_record_without_nan(tmp_path: Path):
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


BY_OPTIONS = ("ablation", "factorial", "predict", "quality", "roofline", "sass", "scaling", "tune")


@pytest.mark.parametrize(
    ("name", "given", "remedy"),
    [
        *((name, "variant=graph", "give options.variants=[graph]") for name in BY_OPTIONS),
        ("sass", "stack=[vec128,fused_head]", "give options.variants=[NAME]"),
        ("sass", "variant=catalog", "give options.variants=[NAME]"),
        ("ratios", "variant=warp_split", "leave it out"),
        ("sync_cost", "variant=graph", "leave it out"),
    ],
)
def test_a_choice_of_stacks_that_an_experiment_does_not_read_is_refused(configured, tmp_path, name, given, remedy):
    config = configured(f"experiment={name}", "archs=[sm_90]", f"results={tmp_path}/r.jsonl", given)
    with pytest.raises(LabError) as refused:
        find(name)(Experiment(config, Quiet()))
    assert str(refused.value) == f"variant= or stack= has no effect on experiment={name}; {remedy}"


@pytest.mark.parametrize("name", ["chain", "counts", "formats", "positions", "rivals"])
def test_stacks_of_the_run_and_of_the_options_are_both_taken(configured, tmp_path, name):
    where = (f"experiment={name}", f"results={tmp_path}/r.jsonl", "variant=graph")
    for options, wanted in (((), ["graph"]), (("options.variants=[vec128]",), ["vec128"])):
        chosen = Experiment(configured(*where, *options), Quiet()).chosen
        assert [stack.name for stack in chosen] == wanted


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
