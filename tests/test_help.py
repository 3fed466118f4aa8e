"""--help and --version of every command: what they show stands in the yaml, each fact with its comment."""

import importlib
import re

import pytest
from omegaconf import OmegaConf

from common import ROOT
from common.config.cli import run_task
from common.stacks.catalog import read_catalog

COMMANDS = {  # and the yaml whose keys their help lists
    "experiments.__main__": ("config", "base", "timing/evidence", "validate/plain"),
    "tests.strength.bench": ("bench",),
    "experiments.cache": ("cache", "base"),
    "experiments.chat": ("chat", "generation", "config", "base"),
    "experiments.evidence.__main__": ("evidence",),
    "experiments.generate": ("generate", "generation", "config", "base"),
    "tests.strength.coverage.__main__": ("config", "base"),
    "tests.strength.mutants.__main__": ("mutants", "base"),
    "experiments.report.__main__": ("report",),
    "experiments.serve": ("serve", "config", "base"),
    "tests.strength.soak.__main__": ("soak",),
    "profiles.__main__": ("profiles", "config", "base"),
}


def shown(module: str, capfd, *argv: str) -> str:
    assert importlib.import_module(module).main(argv or ["--help"]) == 0
    return capfd.readouterr().out


@pytest.mark.parametrize("module", COMMANDS)
def test_every_key_is_shown_as_its_yaml_has_it(module, capfd):
    lines = shown(module, capfd).splitlines()
    for name in COMMANDS[module]:
        yaml = (ROOT / "conf" / f"{name}.yaml").read_text().splitlines()
        keys = set(OmegaConf.create("\n".join(yaml))) - {"defaults", "hydra", "name"}
        own = [line for line in yaml if line.partition(":")[0] in keys]
        assert len(own) == len(keys)
        assert {f"  {line}" for line in own} <= set(lines), name


def test_bench_refuses_a_mistake_before_it_measures(capfd, monkeypatch):
    from tests.strength import bench

    monkeypatch.setattr(bench, "figures", lambda *_: pytest.fail("measured"))
    for argv in (["ful=false"], ["full=maybe"], ["threads=32"]):
        assert bench.main(argv) == 2
        assert capfd.readouterr().err.count("\n") == 1


def test_no_command_shows_keys_that_it_refuses(capfd):
    for module in ("experiments.cache", "tests.strength.mutants.__main__"):
        assert "threads" not in shown(module, capfd)


def test_experiments_and_variants_have_a_line_each(capfd):
    text = shown("experiments.__main__", capfd)
    for group in ("experiment", "variant", "model", "device", "timing"):
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            assert re.search(rf"^  {file.stem} +\S+ \S", text, re.MULTILINE), file
    first = (ROOT / "conf" / "experiment" / "predict.yaml").read_text().splitlines()[1]
    assert re.search(rf"^  predict +{re.escape(first[2:].split('. ')[0])}", text, re.MULTILINE)
    assert all(variant.idea in text for variant in read_catalog().variants.values())


def test_knobs_stand_in_columns_and_no_line_ends_in_the_middle(capfd):
    text = shown("experiments.__main__", capfd)
    lines = text.partition("Knobs of variants (knob=value)\n\n")[2].partition("\n\n")[0].splitlines()
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
