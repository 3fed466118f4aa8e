"""Work of variants: expressions over knobs and shapes."""

from dataclasses import replace

import pytest

from common.errors import LabError
from common.model.expressions import evaluate
from common.stacks.catalog import read_catalog, variants
from experiments.prediction import declared
from experiments.prediction.declared import find, read_work, work_of


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("a + 2 * b", 8),
        ("(a + 2) * b", 12),
        ("b - a * b // 4", 2),
        ("a if b - 3 else b", 3),
        ("a if b else 0", 2),
    ],
)
def test_expressions(expression, value):
    assert evaluate(expression, {"a": 2, "b": 3}) == value


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"ring_byte": {"all": 16}}, "work.ring_byte"),
        ({"ring_bytes": 16}, "by stage"),
        ({"ring_bytes": {"mlp": 16}}, "name a stage"),
        ({"ring_bytes": {"all": "chunks"}}, "names chunks; known: chunk, hidden"),
        ({"ring_bytes": {"all": "16.0"}}, "whole numbers"),
        ({"ring_bytes": {"all": "a b"}}, "whole numbers"),
        ({"ring_bytes": {"all": ""}}, "whole numbers"),
        ({"ring_bytes": {"all": "__import__('os').getpid()"}}, "whole numbers"),
        ({"ring_bytes": {"all": "True"}}, "whole numbers"),
        ({"ring_bytes": {"all": "hidden ** 9"}}, "whole numbers"),
        ({"ring_bytes": {"all": "1 // 0"}}, "divides by 0"),
    ],
)
def test_work_that_is_refused(work, said):
    with pytest.raises(LabError, match=r"work\.") as error:
        read_work(work, ["chunk"])
    assert said in str(error.value)


def test_the_narrowest_group_counts():
    by_stage = {"all": "1", "matrices": "2", "qkv": "3"}
    assert [find(by_stage, stage) for stage in ("embed", "down", "qkv")] == ["1", "2", "3"]
    assert find({"matrices": "2"}, "attention") is None


@pytest.mark.parametrize("name", variants())
def test_every_variant_declares_sound_work(name):
    assert work_of.__wrapped__(name).keys() == variants()[name].work.keys()


def test_a_mistake_names_the_yaml(monkeypatch):
    catalog = read_catalog()
    wrong = replace(catalog.variants["vec128"], work={"ring_bytes": {"matrices": "wide"}})
    monkeypatch.setattr(declared, "read_catalog", lambda: replace(catalog, variants={"vec128": wrong}))
    with pytest.raises(LabError, match=r"conf/variant/vec128.yaml work.ring_bytes.matrices: wide names wide; known: "):
        work_of.__wrapped__("vec128")
