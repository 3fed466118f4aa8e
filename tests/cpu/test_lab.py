"""The lab as a Python object: it says what the command line says, and leaves the process that uses it as it was."""

import doctest
import json
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser

import experiments.lab
from common import ROOT
from common.config import cli
from common.config.cli import composed
from common.config.device_choice import DeviceChoice
from common.config.texts import override_text
from common.errors import CompileError
from common.model.stages import LAYER_STAGES
from common.record.store import Store
from common.validate.verdict import Verdict
from experiments import Lab, LabError
from experiments import __main__ as command

pytestmark = pytest.mark.cpu
LAYERS = 2
BARRIERS = 1 + 8 * LAYERS + 2  # after the embedding, eight stages of each layer, the final norm and the head


@pytest.fixture
def open_lab(tmp_path, cpu_cache, seed):
    """open_lab(*overrides, **keys): the tiny model on a CPU, with a store of its own."""

    def open_(*overrides: str, **keys: object) -> Lab:
        default = {"model": "tiny", "device": "ptx", "seed": seed, "cache": cpu_cache, "archs": [], "validate": "quick"}
        return Lab(*overrides, **default | {"results": tmp_path / "records.jsonl"} | keys)

    return open_


def test_the_example_of_the_docstring(tmp_path, cpu_cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cpu_cache))
    found = doctest.testmod(experiments.lab)
    assert (found.failed, found.attempted > 3) == (0, True)


def test_the_examples_of_the_manual(tmp_path, cpu_cache, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cpu_cache))
    monkeypatch.chdir(tmp_path)
    example = "".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL))
    exec(example, {})
    said = capsys.readouterr().out
    assert "Resources(arch: sm_90" in said
    assert "True " in said
    (refusal,) = re.findall(r"print\(error\)  # (.*)", example)
    assert refusal in said
    assert "warp_split  PASSED       tiny" in said
    assert [row["kind"] for row in Store("records.jsonl").records()] == ["run"], "only record() records"
    assert "length\nStats(prompt_tokens=3, kept_tokens=0, tokens=8, " in said


def test_its_record_is_the_one_of_the_command_line(open_lab, tmp_path, cpu_cache, seed, capsys):
    keys = ("model=tiny", "device=ptx", f"seed={seed}", f"cache={cpu_cache}", "archs=[sm_90]", "validate=quick")
    assert command.main([*keys, "variant=warp_split", "ratio=3:5", f"results={tmp_path}/cli.jsonl"]) == 0
    lab = open_lab(archs=["sm_90"])
    stack = lab.stack("warp_split", ratio="3:5")
    stack.resources()
    assert stack.validate().passed
    stack.record()
    (own,) = lab.store.records()
    other = json.loads((tmp_path / "cli.jsonl").read_text())
    for row in (own, other):
        for name in ("id", "time", "took", "seconds", "provenance"):
            row.pop(name, None)
    assert own == other


def test_a_kernel_that_differs_from_its_parent_in_a_bit_has_a_mismatch(open_lab, monkeypatch):
    """vec128 sums in another order, and says so; here it is held to a promise that it does not make."""
    monkeypatch.setattr("experiments.run.steps.equals_parent", lambda *_: True)
    stack = open_lab().stack("vec128")
    verdict = stack.validate()
    assert (verdict.passed, verdict.status, stack.found.status) == (False, "MISMATCH", "MISMATCH")
    assert "differs from its parent" in str(verdict)
    assert "differs from its parent" in verdict._repr_html_()
    assert stack.found.reason == f"{verdict.mismatch}; seed {verdict.seed}"
    assert "vec128 l1=default: MISMATCH" in stack._repr_html_()


def test_a_timeline_is_of_a_kernel_of_its_own(open_lab):
    stack = open_lab(blocks=3).stack("baseline")
    own, found = stack.source.sha, stack.timeline(position=5)
    once = ("embed", "final_norm", "lm_head", "argmax")
    places = [(stage, layer) for stage in LAYER_STAGES for layer in range(LAYERS)] + [(stage, 0) for stage in once]
    spans = found.spans[["stage", "layer", "block"]].itertuples(index=False, name=None)
    assert sorted(spans) == sorted((*place, block) for place in places for block in range(3))
    assert "position 5" in found.title
    assert stack.found.source_sha == own, "records name the kernel that is validated"


def test_what_the_compiler_refuses_raises_and_can_be_recorded(open_lab, monkeypatch):
    lab = open_lab()
    stack = lab.stack("baseline")
    stack.__dict__["source"] = replace(stack.source, text=stack.source.text + "\nno_such_name x;\n")
    with pytest.raises(CompileError, match="no_such_name"):
        stack.compile()
    stack.record()
    assert list(lab.records()["status"]) == ["COMPILE_ERROR"]


def test_only_what_passed_is_timed_and_beside_its_parent(open_lab, monkeypatch):
    """A GPU's choice, with a CPU in its place and a race that only says who runs in it."""
    raced = []

    def time_pair(child, parent, expected, timing, seed, on_detail, beat):
        raced.append((child.stack, parent.stack))
        return ["at 1", "at 50"], "generation"

    monkeypatch.setattr("experiments.run.steps.time_pair", time_pair)
    lab = open_lab(timing="quick")
    lab.config = replace(lab.config, device=DeviceChoice("cuda", "a test"))
    monkeypatch.setattr(DeviceChoice, "bus_id", None)  # there is no GPU to lock
    stack = lab.stack(["redundant_rmsnorm", "vec128"])
    assert stack.measure() == ("at 1", "at 50", "generation")
    assert raced == [(("redundant_rmsnorm", "vec128"), ("redundant_rmsnorm",))]
    assert stack.found.status == "PASSED"

    wrong = lab.stack("vec128")
    wrong.found.verdict, wrong.found.status = Verdict.__new__(Verdict), "MISMATCH"
    monkeypatch.setattr(Verdict, "passed", False)
    with pytest.raises(LabError, match=r"vec128 is MISMATCH.*; only what passes is timed"):
        wrong.measure()
    assert len(raced) == 1


def test_a_text_means_itself_whatever_is_in_it(seed):
    letters = random.Random(seed)
    for number in range(300):
        text = "/" + "".join(letters.choices("ab\\'\" ,:;=[]{}()%$~+-#@é", k=letters.randrange(12)))
        text = re.sub(r"\$[${]*{", "$", text)  # which Hydra would fill in
        override = f"weights={override_text(text)}"
        assert OverridesParser.create().parse_override(override).value() == text, seed
        if number < 5:
            found = composed("config", [override, "stack=[a]"])
            assert (found.weights, found.stack) == (text, ["a"]), seed


def test_values_of_python_are_those_of_the_command_line():
    lab = Lab("timing.positions=[1,9]", device="ptx", model="tiny", seed=3, threads=128, stack=["graph", "vec128"])
    config = lab.config
    assert (config.threads, config.seed, config.timing.positions) == (128, 3, (1, 9))
    assert [stack.stack.variants for stack in lab.stacks] == [("graph", "vec128")]
    assert Lab(device="ptx", blocks=None, debug=True).config.debug
    assert [stack.name for stack in Lab(device="ptx", variant="persistent").stacks] == ["persistent"]


def test_hydra_is_left_as_it_was(tmp_path):
    """In a notebook or a program that uses Hydra for itself, and after a mistake."""
    (tmp_path / "mine.yaml").write_text("value: 3\n")
    with initialize_config_dir(version_base=None, config_dir=str(tmp_path)):
        for word in ("model=tiny", "model=tinny", "timing.stpes=1"):
            before = GlobalHydra.instance().hydra
            with nullcontext() if word == "model=tiny" else pytest.raises(LabError, match="did you mean"):
                Lab(word, device="ptx")
            assert GlobalHydra.instance().hydra is before
            assert compose("mine").value == 3
    assert not GlobalHydra.instance().is_initialized()


def test_labs_are_opened_in_several_threads(monkeypatch):
    """Hydra has one state for all of them."""

    def compose_late(*given, **more):
        time.sleep(0.05)
        return composes(*given, **more)

    composes, threads = cli.compose, [32, 64, 96, 128]
    monkeypatch.setattr(cli, "compose", compose_late)
    with ThreadPoolExecutor(4) as pool:
        labs = pool.map(lambda number: Lab(device="ptx", model="tiny", threads=number), threads)
        assert [lab.config.threads for lab in labs] == threads


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys; from experiments import Lab; lab = Lab(device='ptx', model='tiny'); repr(lab);"
        "print([name for name in ('torch', 'cupy', 'pandas', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_results_show_themselves(open_lab, seed):
    lab = open_lab(archs=["sm_90"])
    stack = lab.stack("warp_split")
    assert repr(lab) == f"Lab(tiny on ptx: requested; seed {seed})"
    assert repr(stack) == "LabStack(warp_split ratio=2:6: not validated)"
    assert "not validated" in stack._repr_html_()
    verdict, counts, resources = stack.validate(), stack.counts(), stack.resources()["sm_90"]
    assert repr(stack) == "LabStack(warp_split ratio=2:6: PASSED)"
    table = table_of(stack._repr_html_())
    assert table["verdict"] == "PASSED"
    assert table["grid barriers a token"] == str(BARRIERS)
    assert table["sm_90 regs/spill"] == f"{resources.registers}/{resources.spill_bytes}"
    for result in (verdict, counts, resources):
        assert list(table_of(result._repr_html_())) == list(result.columns())
        assert len(repr(result)) < 400
        assert all(name in repr(result) for name in result.columns())


def table_of(html: str) -> dict[str, str]:
    """Heads and cells of a table of one row."""
    table = ElementTree.fromstring(html)
    return {head.text: found.text for head, found in zip(table.iter("th"), table.iter("td"), strict=True)}


def test_a_closed_lab_opens_what_it_needs_again(open_lab):
    with open_lab() as lab:
        first = lab.stack("baseline").validate()
        devices = lab.device, lab.racing
    assert not {"_weights", "device", "racing"} & {*vars(lab)}
    assert lab.racing not in devices
    assert lab.stack("baseline").validate() == first
