"""Free texts on a command line: taken literally, or as JSON."""

import json
import random

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from common.config.cli import run_task
from common.config.section import Section
from common.config.texts import TEXTS, admit_text, quoted
from common.errors import LabError

PARTS = (*"a \\'\"${}\n\t,[=é🧪\0", "${", "${oc.env:HOME}", "???")


def read(argument: str) -> object:
    """The value that a task gets from an override, or a list of a sweep's."""
    override = OverridesParser.create().parse_override(admit_text(argument))
    values = list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
    found = [OmegaConf.to_container(OmegaConf.create({"x": getattr(one, "text", one)}), resolve=True) for one in values]
    texts = [one["x"] for one in found]
    return texts if override.is_sweep_override() else texts[0]


def test_any_text_arrives_as_it_was_written(seed):
    rng = random.Random(seed)
    parser = OverridesParser.create()
    for number in range(150):
        text = "".join(rng.choices(PARTS, k=rng.randrange(1, 9)))
        written = json.dumps(text, ensure_ascii=rng.random() < 0.5)
        name = rng.choice(TEXTS)
        assert read(f"{name}={written}") == text, (seed, number)
        assert read(f"+{name}=a{text}") == f"a{text}", (seed, number)
        assert read(f'{name}=[{written},"b"]') == [text, "b"], (seed, number)
        assert read(f"{name}={written},{written}") == [text, text], (seed, number)
        itself = parser.parse_override(f"weights={quoted(text)}").value()
        assert OmegaConf.to_container(OmegaConf.create([itself]), resolve=True) == [text], (seed, number)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        (r'prompt="\\nabla \"\u00e9\" \ud83e\uddea\n"', '\\nabla "é" 🧪\n'),
        ("prompt=Once upon, a\\n ${x}", "Once upon, a\\n ${x}"),
        ("prompt=5", "5"),
        ("prompt=null", None),
        ("weights=~/mes modèles (1)/日本=x", "~/mes modèles (1)/日本=x"),
        ("results=5", "5"),
        ("results='a, b'", "a, b"),
        ("weights=a,b", ["a", "b"]),
        ("cache=null", None),
    ],
)
def test_quotes_make_it_json(argument, value):
    assert read(argument) == value


@pytest.mark.parametrize("wrong", [r'prompt="a\d+"', r'prompt="\u12"', 'prompt="a', 'stop_strings=["a",b]'])
def test_what_begins_as_json_and_is_none_is_refused(wrong):
    with pytest.raises(LabError, match=r"is not JSON: .*; write \"TEXT\""):
        admit_text(wrong)
    with pytest.raises(LabError, match="prompt is not valid Unicode"):
        admit_text(r'prompt="\ud800"')


def test_a_task_gets_texts_in_which_nothing_was_interpolated(monkeypatch):
    monkeypatch.setenv("LAB_SECRET", "taken")
    jobs = []
    texts = [r'prompt="a ${oc.env:LAB_SECRET}\n","${x}"', 'stop_strings=["${prompt}"]']

    def task(cfg):
        values = Section.from_config(cfg).values
        jobs.append((values["prompt"], values["stop_strings"]))
        return 0

    assert run_task(task, "generate", ["-m", *texts]) == 0
    assert jobs == [("a ${oc.env:LAB_SECRET}\n", ["${prompt}"]), ("${x}", ["${prompt}"])]
