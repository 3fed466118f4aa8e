"""Scaling: the figures of a row, the end of an advantage, and its picture, by hand."""

from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from made_records import evidence, result

from experiments.report.figures import all_figures
from experiments.suite import scaling
from experiments.suite.scaling import _row, ends

STACKS = [SimpleNamespace(name=name, knobs={}, variants=(name,)) for name in ("mega", "graph")]


@pytest.fixture(autouse=True)
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


def rows(**lowest: float | None) -> list[dict]:
    """A row for each model, with the least advantage; None: measured, without an interval."""
    return [
        {"gpu": "gpu", "model": model, "faster than graph %": 9.0}
        | ({} if least is None else {"than graph low %": least})
        for model, least in lowest.items()
    ]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (rows(small=8.0, large=1.0), "gpu: mega is faster than graph from small to large, by 9.0 % at the last."),
        (rows(small=None, large=None), "gpu: mega is faster than graph from small to large, by 9.0 % at the last."),
        (rows(small=8.0, middle=0.0, large=-1.0), "gpu: the advantage of mega over graph ends at middle."),
        (rows(small=8.0, middle=-1.0, large=2.0, huge=-2.0), "gpu: the advantage of mega over graph ends at huge."),
        (rows(small=-1.0), "gpu: the advantage of mega over graph ends at small."),
    ],
)
def test_an_advantage_ends_where_it_is_sure_no_more(made, text):
    assert list(ends(made, STACKS)) == [text]


def test_models_that_failed_say_nothing():
    assert list(ends([{"gpu": "gpu", "model": "small"}], STACKS)) == []


def test_all_models_and_gpus_are_in_one_picture():
    end = "% of the read floor"
    table = [
        {"gpu": gpu, "model": model, "MB a token": size, f"mega {end}": 90.0, f"graph {end}": share}
        for gpu, share in (("h200", 20.0), ("b200", None))
        for model, size in (("small", 1000.0), ("large", 16000.0))
    ]
    (figure,) = all_figures(evidence(result("scaling", "predicted", table)))
    words = {node.text for node in ElementTree.fromstring(figure.svg).iter() if node.text}
    assert {"mega, h200", "graph, h200", "mega, b200", "% of the read floor (predicted)"} <= words
    assert "graph, b200" not in words
