"""Free texts on a command line: taken literally, with JSON's escapes."""

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
        single = "'" + written[1:-1].replace("'", "\\'").replace('\\"', '"') + "'"
        name = rng.choice(TEXTS)
        assert read(f"{name}={written}") == text, (seed, number)
        assert read(f"+{name}={single}") == text, (seed, number)
        assert read(f'{name}=[{written},"b",end]') == [text, "b", "end"], (seed, number)
        assert read(f"{name}={single},{written}") == [text, text], (seed, number)
        itself = parser.parse_override(f"weights={quoted(text)}").value()
        assert OmegaConf.to_container(OmegaConf.create([itself]), resolve=True) == [text], (seed, number)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        (r'prompt="Once\nupon"', "Once\nupon"),
        (r"prompt='Once\nupon'", "Once\nupon"),
        (r'prompt="\\nabla \"\u00e9\" \ud83e\uddea"', '\\nabla "é" 🧪'),
        ("prompt=Once upon a time", "Once upon a time"),
        (r'stop_strings=["\n3.",end,"a\\"]', ["\n3.", "end", "a\\"]),
        ("prompt=5", 5),
        ("prompt=null", None),
    ],
)
def test_escapes_are_decoded_and_hydra_reads_the_rest(argument, value):
    assert read(argument) == value


@pytest.mark.parametrize(
    ("argument", "cause"),
    [
        (r"prompt=Once\nupon", r"prompt: \ stands outside quotes"),
        (r"stop_strings=[\n]", r"stop_strings: \ stands outside quotes"),
        ("prompt=${oc.env:HOME}", r"prompt: ${ stands outside quotes"),
        ("++system=a ${x}", "system: ${ stands outside quotes"),
        (r'prompt="a\d+"', r"prompt: \d is not an escape of JSON"),
        (r'prompt="\u12"', r"prompt: \u is not an escape of JSON"),
        (r'prompt="\${x}"', r"prompt: \$ is not an escape of JSON"),
        ('prompt="\udcff"', "prompt is not valid Unicode"),
        (r'stop_strings=["\ud800"]', "stop_strings is not valid Unicode"),
    ],
)
def test_what_could_mean_two_things_is_refused(argument, cause):
    with pytest.raises(LabError) as found:
        admit_text(argument)
    assert found.value.cause == cause


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
