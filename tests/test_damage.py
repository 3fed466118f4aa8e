"""Damaged files of the cache: found by their checksum, made again, and reported."""

import contextlib
import ctypes
import random
import shutil
from pathlib import Path

import pytest
import torch
from checkpoints import MODEL, save, tensors
from faulty_root import make_root, start
from processes import HANGS_S

from common.cache.files import cached
from common.compile.source import build
from common.devices.ptx import library as executor
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
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


def test_a_damaged_stored_hash_of_a_checkpoint_is_ignored(tmp_path, seed):
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


def swap(file: Path, seed: int) -> None:
    """Two parts in the wrong order: the right size, the right bytes."""
    content = file.read_bytes()
    at = random.Random(seed).randrange(1, len(content))
    file.write_bytes(content[at:] + content[:at])


@pytest.mark.parametrize("what", [Path.touch, Path.mkdir, "bytes after its end", swap])
@pytest.mark.parametrize("kind", ["weights", "kernel"])
def test_another_thing_in_the_place_of_a_file_gives_what_was_written_or_an_error(tmp_path, seed, kind, what):
    def use() -> bytes:
        if kind == "kernel":
            return cached(tmp_path / "kernel.o", lambda: b"what a compiler made " * 40)
        return load("synthetic", MODEL, None, tmp_path, seed)[2].flat.view(torch.uint8).numpy().tobytes()

    first = use()
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    if what is swap:
        swap(file, seed)
    elif callable(what):
        file.unlink()
        what(file)
    else:
        file.write_bytes(file.read_bytes() + b"more")
    with contextlib.suppress(LabError):
        assert use() == first


@pytest.mark.cpu
def test_a_damaged_library_is_made_again(tmp_path, monkeypatch, seed):
    sources, cache = tmp_path / "machine", tmp_path / "cache"
    sources.mkdir()
    (sources / "one.cpp").write_text('extern "C" __attribute__((visibility("default"))) int one() { return 1; }')
    monkeypatch.setattr(executor, "SOURCES", sources)
    file = executor.library(cache)
    damaged = damage_each([file], seed)
    assert executor.library(cache) == file
    assert [file.read_bytes()] != damaged, seed
    assert ctypes.CDLL(str(file)).one() == 1


@pytest.mark.cpu
def test_a_damaged_text_or_decoded_kernel_is_made_again(tmp_path, cpu_cache, tiny, seed):
    device, source = PtxDevice(with_executor(tmp_path, cpu_cache), seed=seed), build([], tiny)
    weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat

    def passes() -> bool:
        session = device.session(device.compile(source), weights)
        return validate(session, weights, scenarios(tiny, seed, weights, quick=True), seed).passed

    assert passes()
    files = [path for kind in ("ptx", "rows") for path in tmp_path.glob(f"*.{kind}")]
    assert len(files) >= 2
    damaged = damage_each(files, seed)
    assert passes()
    assert not [file for file, content in zip(files, damaged, strict=True) if file.read_bytes() == content], seed


@pytest.mark.cpu
def test_a_run_reports_what_its_worker_made_again(tmp_path, cpu_cache, seed):
    root, kernels = make_root(tmp_path / "lab"), with_executor(tmp_path / "cache" / "kernels", cpu_cache)
    for damaged in (False, True):
        process = start(root, cpu_cache, "variant=baseline", f"cache={kernels.parent}", "model=tiny")
        _, err = process.communicate(timeout=HANGS_S)
        assert process.returncode == 0, err
        text = min(kernels.glob("*.ptx"))
        assert err.count(f"note: {text} is damaged") == err.count("note: ") == damaged, err
        truncate(text, seed)


def with_executor(folder: Path, cache: Path) -> Path:
    """The folder, with a copy of the executor in `cache`: compiling it takes long."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(executor.library(cache), folder)
    return folder


def damage_each(files: list[Path], seed: int) -> list[bytes]:
    """Damage files in two ways in turn; returns what they are then."""
    for number, file in enumerate(files):
        (flip, truncate)[(number + seed) % 2](file, seed)
    return [file.read_bytes() for file in files]
