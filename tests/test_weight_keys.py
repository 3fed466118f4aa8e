"""Keys of packed weights: with one folder for all, the weights are those that an empty folder gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from changed import changed

from common.model.format import Format, read_format
from common.model.shapes import Model
from common.model.weights import load

MODEL = Model("small", 64, 96, 2, 4, 2, 32, 64, 32, 1e6, 1e-6, True)
FORM = Format("int4", 16)


def check_all(folder: Path, cases: Mapping[str, Mapping[str, Any]]) -> None:
    """Load each case with one cache for all, and with one of its own; other weights are other files, no more."""
    contents = set()
    for name, given in ({"bf16": {"model": MODEL, "seed": 1}} | dict(cases)).items():
        found = [load("synthetic", positions=None, cache_dir=folder / each, **given)[2].flat for each in ("all", name)]
        shared, own = (each.view(torch.int16) for each in found)
        assert torch.equal(shared, own), name
        contents.add(own.numpy().tobytes())
    assert len(list((folder / "all").glob("*.bf16"))) == len(contents)


def test_each_field_of_a_model(tmp_path: Path) -> None:
    """No other file for a field on which no weight depends, such as the positions of the cache."""
    check_all(tmp_path, {name: {"model": one, "seed": 1} for name, one in changed(MODEL)})


@pytest.mark.parametrize("place", ["form", "head"])
def test_each_field_of_a_format(place: str, tmp_path: Path) -> None:
    forms = [FORM, *(form for _, form in changed(FORM))]
    assert [read_format(str(form)) for form in forms] == forms
    models = [MODEL.in_formats(**{place: str(form)}) for form in forms]
    check_all(tmp_path, {one.name: {"model": one, "seed": 1} for one in models})


def test_other_code_reads_no_file_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in ("this", "other"):
        monkeypatch.setattr("common.model.weights.sources_sha", lambda *patterns, code=code: code)
        load("synthetic", MODEL, None, tmp_path)[2].pack()
    assert len(list(tmp_path.glob("*.bf16"))) == 2
