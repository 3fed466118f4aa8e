"""Scaling: the figures of a row, and the end of an advantage, by hand."""

from types import SimpleNamespace

import pytest

from common.errors import LabError
from common.model.shapes import Model
from experiments.engines.race import Ran, Run
from experiments.experiment import Experiment
from experiments.suite import scaling
from experiments.suite.scaling import _row, ends, models_of
from experiments.tables.progress import Quiet

STACKS = [SimpleNamespace(name=name, knobs={}, variants=(name,)) for name in ("mega", "graph")]


@pytest.fixture
def named(monkeypatch) -> None:
    monkeypatch.setattr(scaling, "_name", lambda stack: stack.name)


def test_a_row_is_of_the_bytes_and_the_rate_at_which_they_come():
    """1 GB at 2,000 GB/s: a floor of 500 us, 2,000 tok/s."""
    row = _row("gpu", SimpleNamespace(name="model"), 10**9, 2e12, {"mega": 1500.0, "graph": 500.0})
    assert row == {
        "gpu": "gpu",
        "model": "model",
        "MB a token": 1000.0,
        "read floor us": pytest.approx(500),
        "mega tok/s": 1500.0,
        "graph tok/s": 500.0,
        "mega % of the read floor": pytest.approx(75),
        "graph % of the read floor": pytest.approx(25),
    }


def rows(other: str = "graph", **gains: float) -> list[dict]:
    """A row for each model, with the advantage in percent."""
    return [{"gpu": "gpu", "model": model, f"faster than {other} %": gain} for model, gain in gains.items()]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (rows(small=8.0, large=1.0), "mega is faster than graph from small to large, by 1.0 % at the last."),
        (rows("Triton", a=9.0, b=9.0), "mega is faster than Triton from a to b, by 9.0 % at the last."),
        (rows(small=8.0, middle=0.0, large=-1.0), "the advantage of mega over graph ends at middle."),
        (rows(small=8.0, middle=-1.0, large=2.0, huge=-2.0), "the advantage of mega over graph ends at huge."),
        (rows(small=-1.0), "the advantage of mega over graph ends at small."),
    ],
)
def test_an_advantage_ends_where_there_is_none(named, made, text):
    assert list(ends(made, STACKS)) == [f"gpu: {text}"]


def test_models_that_failed_say_nothing(named):
    assert list(ends([{"gpu": "gpu", "model": "small"}], STACKS)) == []


@pytest.fixture
def models(configured, tmp_path):
    """models(*overrides): those of the experiment with these overrides."""

    def of(*overrides: str) -> list[Model]:
        config = configured("experiment=scaling", f"results={tmp_path}/r.jsonl", *overrides)
        return models_of(Experiment(config, Quiet()))

    return of


def test_models_have_the_formats_and_the_cache_of_the_run(models):
    formats = ("format=int4:32", "head_format=int8", "kv_format=fp8")
    (one,) = models("options.models=[tiny]", "model.positions=80", *formats)
    assert (one.shape, one.positions, one.format, one.head_format, one.kv_format) == (
        "tiny",
        80,
        "int4:32",
        "int8",
        "fp8",
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("model=tiny", r"model= has no effect on experiment=scaling; give options.models=\[tiny\]; model.positions="),
        ("model.layers=2", r"model= has no effect on experiment=scaling"),
        ("weights=some/where", "weights= has no effect on experiment=scaling, whose models have synthetic ones"),
    ],
)
def test_models_and_weights_that_would_not_be_used_are_refused(models, given, message):
    with pytest.raises(LabError, match=message):
        models(given)


@pytest.mark.parametrize(
    ("tokens", "share", "said"),
    [
        (2, 25.0, "A GPU: streaming is faster than Triton from tiny to tiny, by 25.0 % at the last."),
        (1, None, "Left out: Triton: Triton made 1 tokens, which give no rate; raise options.tokens"),
    ],
)
def test_triton_is_raced_on_a_gpu_or_left_out(configured, tmp_path, monkeypatch, tokens, share, said):
    """1,000 tok/s of streaming beside 800 of Triton."""

    def records(self, stacks, position):
        at = {"position": position, "seconds": {"median": 1e-3}, "bandwidth": 1e12, "of_ceiling": 0.5, "verdict": None}
        about = {"status": "PASSED", "reason": "", "latencies": [at], "device": {"gpu": "A GPU"}}
        return [{"variant": stack.name, **about} for stack in stacks]

    run = Run([1] * tokens, first=0.0, rate=800.0 if share else None)
    monkeypatch.setattr(scaling, "ARMS", {"Triton": SimpleNamespace(run=lambda work: Ran([run]))})
    monkeypatch.setattr(scaling, "apart", lambda limit, work, *about: work(*about))
    monkeypatch.setattr(Experiment, "on_gpu", True)
    monkeypatch.setattr(Experiment, "measured_records", records)
    monkeypatch.setattr("common.devices.cuda.context_lost", lambda: False)
    keys = ("options.models=[tiny]", "model.positions=64", f"results={tmp_path}/r.jsonl", f"cache={tmp_path}")
    experiment = Experiment(configured("experiment=scaling", *keys), Quiet())
    found = scaling.ask(experiment)
    (row,) = found.lines
    assert row["streaming tok/s"] == pytest.approx(1000)
    assert row.get("faster than Triton %") == (share and pytest.approx(share))
    assert said in (*found.notes, *experiment.left_out)
