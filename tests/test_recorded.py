"""Resources out of committed records: the compiler's own, or none."""

import json
from contextlib import contextmanager
from dataclasses import replace

import pytest
from composed import NAMED, VARIANTS, Composed
from sampled import sampled

from common.compile.nvrtc import version
from common.compile.sass import inspect
from common.config.resolve import model_named
from experiments.run import recorded

ARCH = "sm_90"


@pytest.mark.parametrize("composed", sampled([*VARIANTS, *NAMED], 3), ids=str)
def test_a_record_holds_what_the_compiler_makes(composed, cpu_cache):
    """If this fails, a committed record is older than what reads the cubins."""
    source = composed.source(model_named("tiny"))
    assert recorded.resources(source, [ARCH], cpu_cache / "cubins") == inspect(source, [ARCH], cpu_cache / "cubins")


@contextmanager
def committed(tmp_path, monkeypatch, source, nvrtc):
    """One record, of a compilation that found 7 registers."""
    found = {"arch": ARCH, "kernel": "decode", "spill_bytes": 0, "stack": 0, "local": 0, "shared": 0, "histogram": {}}
    resources = {ARCH: found | {"registers": 7}}
    row = {"kind": "build", **source.facts(), "resources": resources, "provenance": {"nvrtc": nvrtc}}
    folder = tmp_path / "results"
    recorded.Store(folder / "a.jsonl").append(json.loads(json.dumps(row, default=vars)))
    monkeypatch.setattr(recorded, "EVIDENCE", folder)
    recorded.recorded.cache_clear()
    yield
    recorded.recorded.cache_clear()


def test_a_text_that_a_record_names_is_not_compiled(tmp_path, monkeypatch):
    source = Composed(("vec128",)).source(model_named("tiny"))
    with committed(tmp_path, monkeypatch, source, version()):
        assert recorded.resources(source, [ARCH], tmp_path)[ARCH].registers == 7
    assert not list(tmp_path.glob("*.cubin"))


@pytest.mark.parametrize(("nvrtc", "text"), [("12.9.0", ""), (None, "// changed")])
def test_another_compiler_and_another_text_are_compiled(nvrtc, text, tmp_path, monkeypatch):
    source = Composed(("vec128",)).source(model_named("tiny"))
    with committed(tmp_path, monkeypatch, source, nvrtc or version()):
        other = replace(source, text=source.text + text)
        assert recorded.resources(other, [ARCH], tmp_path)[ARCH].registers > 7
