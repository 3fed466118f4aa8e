"""--help and --version of every command: they show the yaml, each key with its comment."""

import importlib
import re

import pytest
from omegaconf import OmegaConf

from common import ROOT
from common.config.cli import run_task
from common.stacks.catalog import read_catalog

COMMANDS = {  # and the yaml files with the keys in their help
    "experiments.__main__": ("config", "base", "command"),
    "tests.strength.coverage.__main__": ("coverage",),
    "experiments.evidence.__main__": ("evidence", "command"),
    "experiments.generate": ("generate",),
    "tests.strength.mutants.__main__": ("mutants", "base", "command"),
    "experiments.ptx.__main__": ("ptx", "base", "command"),
    "experiments.report.__main__": ("report", "command"),
    "experiments.serve": ("serve",),
    "experiments.show.__main__": ("show", "command"),
    "tests.strength.soak.__main__": ("soak", "command"),
    "profiles.__main__": ("profiles",),
}


def shown(module: str, capfd, *argv: str) -> str:
    assert importlib.import_module(module).main(argv or ["--help"]) == 0
    return capfd.readouterr().out


def test_a_command_without_keys_of_its_own_has_no_list_of_them(capfd):
    assert "Keys (key=value)" not in shown("tests.strength.coverage.__main__", capfd)


@pytest.mark.parametrize("module", COMMANDS)
def test_help_fits_a_screen_and_shows_every_key_as_its_yaml_has_it(module, capfd):
    text = shown(module, capfd)
    assert f"python -m {module.removesuffix('.__main__')}" in text
    assert "Hydra (https" not in text
    lines = text.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
    for name in COMMANDS[module]:
        yaml = (ROOT / "conf" / f"{name}.yaml").read_text()
        for key in set(OmegaConf.create(yaml)) - {"defaults", "hydra"}:
            (own,) = (line for line in yaml.splitlines() if line.startswith(f"{key}:"))
            assert any(line.startswith(f"  {own}") for line in lines), own
    assert (ROOT / "conf" / f"{COMMANDS[module][0]}.yaml").read_text().startswith(f"# {lines[0]}\n")


def test_a_topic_is_a_choice_or_a_section(capfd):
    assert "--cuda-graph-trace=node" in shown("profiles.__main__", capfd, "--help", "nsys")
    assert "  rounds: 10 " in shown("experiments.__main__", capfd, "--help", "timing")
    assert "\n  races: false " in shown("experiments.__main__", capfd, "--help", "device"), "a key of no default"
    assert "\n  trials: 200 " in shown("experiments.__main__", capfd, "experiment=tune", "threads=64", "--help")
    assert ": Small" not in (text := shown("experiments.__main__", capfd, "--help", "model=tiny"))
    assert "\nhidden: 64\n" in text
    assert "warps load weights ahead" in shown("experiments.__main__", capfd, "--help", "variant=warp_split")
    assert importlib.import_module("experiments.__main__").main(["--help", "modles"]) == 2
    assert "unknown topic 'modles'; did you mean 'model'?" in capfd.readouterr().err


@pytest.mark.parametrize("module", ["experiments.__main__", *(name for name in COMMANDS if len(COMMANDS[name]) == 1)])
def test_help_has_exactly_the_choices_that_a_command_takes(module, capfd):
    text, wrong = shown(module, capfd), "threads=33"  # refused later than a choice without effect
    assert ("but not experiment, resume, timing," in text) == (module != "experiments.__main__")
    for choice in ("variant=vec128", "model=odd", "device=ptx", "timing=full", "validate=quick", "experiment=counts"):
        group, _, value = choice.partition("=")
        assert importlib.import_module(module).main([choice, wrong]) == 2
        listed = re.search(rf"^  {group} (?:.|\n   )*?\b{value}\b", text, re.MULTILINE)
        assert capfd.readouterr().err.startswith(f"error: {wrong if listed else f'{group}= has no effect on a '}")


@pytest.mark.parametrize(
    ("module", "mistake", "said"),
    [
        ("ptx", "sm_70", "unknown target 'sm_70'"),
        ("python", "smaple=3", "unknown key 'smaple'"),
        ("python", "sample=many", "sample=many"),
        ("python", "3", "unknown key '3'"),
    ],
)
def test_a_command_without_a_yaml_has_its_text_for_help(module, mistake, said, capfd):
    name = f"tests.strength.{module}"
    assert f"python -m {name}" in shown(name, capfd)
    assert importlib.import_module(name).main([mistake]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_every_value_of_a_choice_has_a_line(capfd):
    for group in ("experiment", "variant", "model", "device", "timing"):
        text = shown("experiments.__main__", capfd, "--help", group)
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            assert re.search(rf"^  {file.stem} +\S+ \S", text, re.MULTILINE), file
    text = shown("experiments.__main__", capfd, "--help", "experiment")
    first = (ROOT / "conf" / "experiment" / "roofline.yaml").read_text().splitlines()[1]
    assert re.search(rf"^  roofline +{re.escape(first[2:].split('. ')[0])}", text, re.MULTILINE)
    text = shown("experiments.__main__", capfd, "--help", "variants")
    assert all(variant.idea in text for variant in read_catalog().variants.values())


def test_knobs_stand_in_columns_and_no_line_ends_in_the_middle(capfd):
    text = shown("experiments.__main__", capfd, "--help", "variant")
    assert "matrices=[o,gate,up,down] " in text  # as a command line takes it
    lines = text.partition("Knobs (knob=value)\n")[2].splitlines()
    knobs = [knob for variant in read_catalog().variants.values() for knob in variant.knobs]
    assert len(lines) == len(knobs) > 10
    assert len({line.rindex(knob.help) for line, knob in zip(lines, knobs, strict=True)}) == 1
    assert not re.search(r"\.\.\.$", text, re.MULTILINE)


def test_the_version_is_the_labs(capfd):
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert shown("experiments.__main__", capfd, "--version") == f"megakernel-lab {version}\n"


def test_a_root_without_a_configuration(tmp_path, capsys):
    assert run_task(lambda cfg: 0, "config", [], tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} has no conf/; ")
