"""A run without a GPU shows what is predicted for its stacks, and counts nothing for it."""

import io
from dataclasses import replace

import pytest

from common.model import Model
from experiments.inquiry import Inquiry
from experiments.prediction import forecast
from experiments.prediction.counting import Ledger, Uncounted
from experiments.prediction.forecast import forecasts
from experiments.progress import Progress

SMALL = Model("small", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)


@pytest.fixture
def config(configured, tmp_path):
    return configured("model=tiny", "variant=redundant_rmsnorm", f"results={tmp_path}/r.jsonl", f"cache={tmp_path}")


@pytest.mark.host
def test_what_is_counted_is_predicted_against_its_parent(config, monkeypatch):
    """Counts of a small model stand in for those of Qwen3-0.6B, which take a minute."""
    monkeypatch.setattr(forecast, "model_named", lambda name: SMALL)
    show = Progress(io.StringIO())
    (stack,) = config.stacks
    assert forecasts(config, show) == {}  # nobody has counted it yet
    assert not config.results.exists()
    inquiry = Inquiry(replace(config, model=SMALL), show)
    own, parent = (
        inquiry.predict(variants, stack.knobs, inquiry.gpu("rtx3090"), 1).seconds
        for variants in (stack.variants, stack.parent)
    )
    found = forecasts(config, show)["redundant_rmsnorm"]
    assert found.parent == ()
    assert found.microseconds == pytest.approx(1e6 * own)
    assert found.effect == pytest.approx(own / parent - 1)
    assert own < parent  # two grid barriers a layer less


def test_a_ledger_that_may_not_count_says_so(config, tmp_path):
    from common.records import Store
    from common.source import build

    ledger = Ledger(Store(config.results), tmp_path, None)
    with pytest.raises(Uncounted, match="make them with experiment=counts"):
        ledger.count(build([], SMALL), 7)
