"""Keys of the caches besides that of weights: each input in turn makes another file, and all sources are among them."""

import ast
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from changed import changed

from common import ROOT
from common.cache import folder
from common.compile import nvrtc, sass
from common.devices.ptx import library
from common.model import weights
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.record.store import key
from common.validate import tolerances
from common.validate.reference import Past
from common.validate.tolerances import ReferenceSteps

MODEL = Model("small", 16, 32, 1, 2, 1, 8, 16, 8, 1e6, 1e-6, True)


def files(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


@pytest.mark.parametrize("module", [weights, tolerances])
def test_sources_in_a_key_are_all_that_the_module_reads(module: Any) -> None:
    """All of common/model and common/validate that it imports, or that those import."""
    found, left = set(), [Path(module.__file__)]
    while left:
        path = left.pop()
        if path in found or path.parts[-2] not in ("model", "validate"):
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("common."):
                place = ROOT / node.module.replace(".", "/")
                left += [place.with_suffix(".py"), *(place / f"{each.name}.py" for each in node.names)]
                left = [each for each in left if each.exists()]
    patterns = (module.SOURCES,) if isinstance(module.SOURCES, str) else module.SOURCES
    assert found <= {path for pattern in patterns for path in ROOT.glob(pattern)}


def test_each_input_of_a_reference_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of the model, the weights, the code, and what a step is given."""
    _, layout, packed = load("synthetic", MODEL, None, tmp_path / "weights")
    shape = (*layout.cache.stored[:3], layout.cache.stored[4])
    past = torch.zeros(*shape[:3], 3, shape[3]).bfloat16()
    monkeypatch.setattr(tolerances, "packed", lambda *taps: b"")
    monkeypatch.setattr(tolerances, "unpacked", lambda content: None)
    monkeypatch.setattr(tolerances.Reference, "step", lambda *given: None)
    monkeypatch.setattr(tolerances, "tolerances", lambda *taps: None)

    def steps(model: Model = MODEL, sha: str = "sha", token: int = 3, past: Any = past, stored: Any = None) -> int:
        known = ReferenceSteps(Layout(model), packed.flat, folder=tmp_path / "taps", weights_sha=sha)
        known.step(token, Past.of(past), torch.zeros(shape).bfloat16() if stored is None else stored)
        return len(files(tmp_path / "taps"))

    assert steps() == steps() == 1
    count = 1
    for name, one in changed(MODEL):
        count += 1
        assert steps(one) == count, name
    others = {"sha": "other", "token": 4, "past": past[..., :2, :], "stored": torch.ones(shape).bfloat16()}
    for name, value in others.items():
        count += 1
        assert steps(**{name: value}) == count, name
    monkeypatch.setattr(tolerances, "sources_sha", lambda *patterns: "other code")
    assert steps() == count + 1
    monkeypatch.setattr(torch, "__version__", "other")
    assert steps() == count + 2


def test_each_part_of_a_record_and_each_field_of_its_model() -> None:
    given = {"source_sha": "s", "knobs": {"a": {"b": 1, "c": 2}}, "model": MODEL, "weights_sha": "w", "device": "d"}
    given["compiler"] = "c"
    others = [given | {name: "other"} for name in given] + [given | {"model": one} for _, one in changed(MODEL)]
    others.append(given | {"knobs": {"a": {"b": 1, "c": 3}}})
    keys = [key(**each) for each in (given, *others)]
    assert len({*keys}) == len(keys)
    assert key(**given) == key(**given | {"knobs": {"a": {"c": 2, "b": 1}}}), "in any order"


def test_each_input_of_compiled_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "built", lambda request: (b"content",))
    monkeypatch.setattr(nvrtc, "version", lambda: "1")
    for make in (nvrtc.compile_cubin, nvrtc.compile_ptx):
        place = tmp_path / make.__name__
        given = {"text": "text", "arch": "sm_90", "name": "decode.cu"}
        for each in (given, given, *(given | {name: "other"} for name in given)):
            make(**each, cache_dir=place)
        assert len(files(place)) == 4
        with monkeypatch.context() as other:
            other.setattr(nvrtc, "version", lambda: "2")
            make(**given, cache_dir=place)
        with monkeypatch.context() as other:
            other.setattr(nvrtc, "options", lambda *given: ("-other",))
            make(**given, cache_dir=place)
        assert len(files(place)) == 6


def test_each_input_of_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cubin and the program; all are files of the cache, which it counts and clears."""
    monkeypatch.setattr(sass, "_tool", lambda *given: "\n.section .text.decode\n")
    monkeypatch.setattr(sass, "_find", lambda tool: str(tmp_path / tool))
    monkeypatch.setattr(sass, "SECTION", sass.re.compile(r"\.section \.text\.(\w+)"))
    for program in ("one", "another"):
        (tmp_path / "nvdisasm").write_text(program)
        for cubin in (b"1", b"2"):
            for _ in range(2):
                sass.sass(cubin, cache_dir=tmp_path / "listings")
    assert len(files(tmp_path / "listings")) == len(folder.files(tmp_path)) == 4


def test_each_source_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "built", lambda target, *given: target)
    monkeypatch.setattr(library, "version", lambda: "g++ 1")
    sources = shutil.copytree(library.SOURCES, tmp_path / "machine")
    monkeypatch.setattr(library, "SOURCES", sources)
    made = [library.library(tmp_path / "cache")] * 2
    for source in sorted(sources.iterdir()):
        source.write_text(source.read_text() + "// another\n")
        made.append(library.library(tmp_path / "cache"))
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-other"))
    made.append(library.library(tmp_path / "cache"))
    monkeypatch.setattr(library, "cpu", lambda: "another")
    made.append(library.library(tmp_path / "cache"))
    monkeypatch.setattr(library, "version", lambda: "g++ 2")
    made.append(library.library(tmp_path / "cache"))
    assert len({*made}) == len(made) - 1
