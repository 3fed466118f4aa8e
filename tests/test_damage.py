"""Damaged files of the cache: found by their checksum, made again, and reported."""

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from checkpoints import MODEL, save, tensors
from faulty_root import make_root, start
from processes import HANGS_S

from common.cache.files import cached
from common.compile.source import build
from common.devices.host import compiler
from common.devices.host.compiler import Compiler
from common.devices.host.device import UNITS, HostDevice
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import scenarios


def flip(file: Path, seed: int, last: int | None = None) -> bytes:
    """Change one random bit among the first `last` bytes; returns the content before."""
    content = file.read_bytes()
    at = random.Random(seed).randrange(8 * (last or len(content)))
    damaged = bytearray(content)
    damaged[at // 8] ^= 1 << at % 8
    file.write_bytes(damaged)
    return content


def truncate(file: Path, seed: int) -> bytes:
    content = file.read_bytes()
    file.write_bytes(content[: random.Random(seed).randrange(len(content))])
    return content


@pytest.mark.parametrize("damage", [flip, truncate])
def test_damaged_weights_are_made_again_and_reported(tmp_path, seed, caplog, damage):
    first = load("synthetic", MODEL, None, tmp_path, seed)[2].flat.clone()
    (kept,) = tmp_path.iterdir()
    assert not caplog.records
    content = damage(kept, seed)
    again = load("synthetic", MODEL, None, tmp_path, seed)[2].flat
    assert again.equal(first), seed
    assert kept.read_bytes() == content
    (record,) = caplog.records
    assert record.getMessage() == f"note: {kept} is damaged; it is made again"
    assert list(tmp_path.iterdir()) == [kept]


def test_a_damaged_stored_hash_of_a_checkpoint_is_ignored(tmp_path, seed, monkeypatch):
    monkeypatch.setattr("common.cache.weight_files.SETTLED", -1.0)
    spec = str(save(tmp_path / "ckpt", tensors(seed)))
    first = load(spec, None, None, tmp_path / "cache")[2].sha
    (memory,) = (tmp_path / "cache").glob("*.sha256")
    flip(memory, seed, last=64)
    assert load(spec, None, None, tmp_path / "cache")[2].sha == first


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_file_of_any_kind_is_made_again(tmp_path, seed, caplog, damage):
    path, content = tmp_path / "sub" / "name", random.Random(seed).randbytes(99)
    assert cached(path, lambda: content) == content
    assert cached(path, lambda: pytest.fail("made again")) == content
    damage(path, seed)
    assert cached(path, lambda: content) == content, seed
    assert [record.getMessage().split()[0] for record in caplog.records] == ["note:"]
    assert cached(path, lambda: pytest.fail("made again")) == content
    assert cached(tmp_path / "empty", bytes) == b"" == cached(tmp_path / "empty", lambda: b"other")


@pytest.fixture
def filled(host_cache, tiny) -> Callable[[Path], Path]:
    """filled(folder): it has all that the baseline is compiled into, out of the tests' own cache."""
    device, source = HostDevice(host_cache), build([], tiny)
    objects = device.kernel(source), Compiler(host_cache).runtime(UNITS), device.compile(source).binary

    def fill(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for file in objects:
            shutil.copy2(file, folder)
        return folder

    return fill


@pytest.mark.host
def test_a_damaged_object_or_library_is_made_again(tmp_path, filled, tiny, seed):
    device, source = HostDevice(filled(tmp_path)), build([], tiny)
    program = device.compile(source)
    files = sorted(tmp_path.iterdir())
    assert [file.suffix for file in files].count(".so") == 1
    for number, file in enumerate(files):
        (flip, truncate)[(number + seed) % 2](file, seed)
    damaged = [file.read_bytes() for file in files]
    assert device.compile(source) == program
    assert not [file for file, content in zip(files, damaged, strict=True) if file.read_bytes() == content], seed
    weights = load("synthetic", tiny, None, tmp_path / "weights", seed)[2].flat
    with closing(device.session(program, weights)) as session:
        verdict = validate(session, weights, tiny, scenarios(tiny, seed, weights, quick=True), seed)
    assert verdict.passed, verdict


@pytest.mark.host
def test_a_cached_object_is_used_only_with_the_same_stages_and_headers(tmp_path, monkeypatch):
    """Stage names are compiled into the runtime; an object with others counted beyond the end of its table."""
    build = Compiler(tmp_path / "cache")
    units = ["calls.cpp"]
    first = build.runtime(units)
    assert build.runtime(units) == first
    monkeypatch.setattr(compiler, "STAGES", (*compiler.STAGES, "one_more"))
    assert build.runtime(units) != first
    monkeypatch.undo()
    copy = tmp_path / "host"
    shutil.copytree(compiler.RUNTIME, copy)
    monkeypatch.setattr(compiler, "RUNTIME", copy)
    assert build.runtime(units) == first
    (copy / "runtime.hpp").rename(copy / "renamed.hpp")
    (copy / "runtime.hpp").write_text('#include "renamed.hpp"\n')
    assert build.runtime(units) != first


@pytest.mark.host
def test_a_run_reports_what_its_worker_made_again(tmp_path, filled, host_cache, seed):
    root, kernels = make_root(tmp_path / "lab"), filled(tmp_path / "cache" / "kernels")
    for damaged in (False, True):
        process = start(root, host_cache, "variant=baseline", f"cache={kernels.parent}", "model=tiny")
        _, err = process.communicate(timeout=HANGS_S)
        assert process.returncode == 0, err
        (library,) = kernels.glob("*.so")
        assert err.count(f"note: {library} is damaged") == err.count("note: ") == damaged, err
        truncate(library, seed)
