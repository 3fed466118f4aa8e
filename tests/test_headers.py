"""Headers of the shipped variants: each says what its struct overrides, and the command to run it."""

import re
import shlex

import pytest
from parts import header

from common import ROOT
from common.config.cli import run_task
from common.config.resolve import resolve
from common.stacks.catalog import BASELINE, read_catalog

VARIANTS = read_catalog().variants
MEMBER = re.compile(r"static (?:DEVICE|constexpr) [\w:<>&* ]*?(\w+)(?:\(| =)")
BASE = (("common/kernel/decode.cuh", "Decode"), ("variants/baseline.cu", "Baseline"))


def members(file: str, struct: str) -> set[str]:
    """Names of the functions and constants that a struct defines itself, and not in a struct within it."""
    text = re.sub(r"//.*", "", (ROOT / file).read_text())
    depth, own = 0, ""
    for character in text[text.index(f"struct {struct} ") :]:
        depth += (character == "{") - (character == "}")
        own += character if depth == 1 else ""
        if character == "}" and depth == 0:
            break
    return set(MEMBER.findall(own))


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != BASELINE])
def test_a_header_has_its_fields(name):
    assert [*header(name)] == ["Idea", "Hypothesis", "Overrides", "Run"]
    assert header(name)["Idea"] == VARIANTS[name].idea


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != BASELINE])
def test_overrides_are_what_the_struct_overrides(name):
    base = set().union(*(members(*place) for place in BASE))
    variant = VARIANTS[name]
    said = header(name)["Overrides"]
    assert {*said.split(", ")} - {"nothing"} == members(f"variants/{name}.cu", variant.mixin) & base


@pytest.mark.parametrize("name", VARIANTS)
def test_the_command_runs_the_variant(name):
    found = []

    def task(cfg) -> int:
        found.append(resolve(cfg))
        return 0

    command = shlex.split(header(name)["Run"].removeprefix("python -m experiments "))
    assert run_task(task, "config", ["device=ptx", *command]) == 0
    assert [stack.variants[-1:] for stack in found[0].stacks] == [(name,) if name != BASELINE else ()]
