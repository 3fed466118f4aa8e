"""Predictions in a run without a GPU: shown for counted stacks, and nothing is counted for them."""

import io
from dataclasses import replace

import pytest

from common.model.shapes import Model
from experiments.experiment import Experiment
from experiments.prediction import forecast
from experiments.prediction.forecast import counting, forecasts
from experiments.prediction.predictor import Predictor, Uncounted, as_counts
from experiments.tables.progress import Progress

SMALL = Model("small", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)


@pytest.fixture
def config(configured, tmp_path, cpu_cache):
    return configured("model=tiny", "variant=redundant_rmsnorm", f"results={tmp_path}/r.jsonl", f"cache={cpu_cache}")


@pytest.mark.cpu
def test_a_counted_stack_is_predicted_against_its_parent(config, monkeypatch):
    """Counts of a small model replace Qwen3-0.6B's, which take a minute."""
    monkeypatch.setattr(forecast, "model_named", lambda name: SMALL)
    show = Progress(io.StringIO())
    (stack,) = config.stacks
    unknown = forecasts(config)["redundant_rmsnorm"]  # not counted yet
    assert (unknown.microseconds, unknown.effect) == (None, None)
    assert "no counts of qwen3_0_6b yet: python -m experiments experiment=counts" in unknown.note
    assert not config.results.exists()
    predictor = Experiment(replace(config, model=SMALL), show).predictor
    own, parent = (
        predictor.predict(variants, stack.knobs, predictor.gpu("rtx3090"), 1).seconds
        for variants in (stack.variants, stack.parent)
    )
    found = forecasts(config)["redundant_rmsnorm"]
    assert found.parent == ()
    assert found.microseconds == pytest.approx(1e6 * own)
    assert found.effect == pytest.approx(own / parent - 1)
    assert own < parent  # two grid barriers per layer less


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["variant=warp_split", "ratio=1:7"], "variant=warp_split ratio=1:7"),
        (["variant=warp_split", "ratio=1:3", "threads=128"], "variant=warp_split ratio=1:3 threads=128"),
        (["variant=l2_prefetch", "matrices=[o,gate]"], "variant=l2_prefetch matrices=[o,gate]"),
        (["stack=[vec128,fused_head]"], "stack=[vec128,fused_head]"),
    ],
)
def test_the_printed_count_command_selects_the_same_stack(overrides, words, configured):
    """The command, parsed again, gives the stack that it was made for."""
    config = configured("model=tiny", *overrides)
    command = counting(config.stacks[0], config.threads)
    assert command == f"python -m experiments experiment=counts {words}"
    again = configured("model=tiny", *command.split()[3:])
    assert (again.stacks, again.threads) == (config.stacks, config.threads)


@pytest.mark.cpu
def test_an_effect_that_is_not_modelled_is_missing_and_not_zero(configured, monkeypatch, tmp_path, cpu_cache):
    """atomic_barrier has as many barriers as its parent, and all cost the same in the model: 0 would be a claim."""
    monkeypatch.setattr(forecast, "model_named", lambda name: SMALL)
    config = configured("variant=atomic_barrier", f"results={tmp_path}/r.jsonl", f"cache={cpu_cache}")
    predictor = Experiment(replace(config, model=SMALL), Progress(io.StringIO())).predictor
    for variants in (("atomic_barrier",), ()):
        predictor.predict(variants, config.stacks[0].knobs, predictor.gpu("rtx3090"), 1)
    found = forecasts(config)["atomic_barrier"]
    assert found.microseconds > 0
    assert (found.effect, found.note) == (None, "not modelled")


def test_counts_that_may_not_be_made_are_reported(config, tmp_path):
    from common.compile.source import build
    from common.record.store import Store

    predictor = Predictor(SMALL, 256, Store(config.results), tmp_path)
    with pytest.raises(Uncounted, match="make them with experiment=counts"):
        predictor.count(build([], SMALL), 7)


def test_a_variant_that_the_gpu_is_too_old_for_has_no_prediction_and_ends_nothing(configured, tmp_path, monkeypatch):
    monkeypatch.setattr(Predictor, "count", lambda *asked: as_counts({}))
    monkeypatch.setattr(forecast, "GPU", "t4")
    monkeypatch.setattr(forecast, "NEWER", "t4")
    found = forecasts(configured("model=tiny", "variant=bulk_ring", f"results={tmp_path}/r.jsonl"))["bulk_ring"]
    assert (found.microseconds, found.effect, found.note) == (
        None,
        None,
        "bulk_ring needs sm_80 and T4 is sm_75, without asynchronous copies, "
        "barriers in shared memory that count them, or bf16 in tensor cores",
    )


def test_the_steps_to_the_fast_kernel_are_predicted_for_a_gpu_that_holds_all_of_them(configured, tmp_path):
    config = configured("model=tiny", "variant=ladder", f"results={tmp_path}/r.jsonl")
    found = forecasts(config)
    assert [name for name, one in found.items() if one.microseconds is None] == []
    assert (len(found), {one.gpu for one in found.values()}) == (8, {"h200"})
    assert {one.gpu for one in forecasts(replace(config, stacks=config.stacks[:1])).values()} == {"rtx3090"}
