"""Checkpoint files on disk: every fault is reported in one line, and leaves no packed file."""

import contextlib
import itertools
import json
import random
import re
import sys
from pathlib import Path

import pytest
import torch
from checkpoints import MODEL, refused, save, tensors
from permissions import without_root_rights
from safetensors.torch import save_file

from common.errors import LabError
from common.model.checkpoint import find
from common.model.shapes import Model
from common.model.weights import load


def shard(folder: Path) -> dict[str, str]:
    """A checkpoint of two shards and an index; returns the weight map."""
    save(folder).unlink()
    names = list(tensors())
    where = {}
    for number, part in enumerate((names[:9], names[9:])):
        file = f"model-{number + 1:05}-of-00002.safetensors"
        save_file({name: tensors()[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    write_index(folder, where)
    return where


def write_index(folder: Path, where: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def test_forms_of_a_path(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    refused("", "no such file", cache=cache)
    refused(tmp_path / "missing", "no such file", cache=cache)
    refused("~no-such-user/ckpt", "no such file", cache=cache)
    refused("empty/missing", "no such file", cache=cache)  # looks like a hub id, but `empty` is a folder here
    refused("empty", "neither", cache=cache)
    refused("x" * 5000, "cannot be read", cache=cache)
    (tmp_path / "empty" / "pytorch_model.bin").write_bytes(b"\x80\x04")
    refused("empty", "pickled", "pytorch_model.bin", "save_pretrained", cache=cache)
    refused("empty/pytorch_model.bin", "not a .safetensors", cache=cache)
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    refused("loop.safetensors", "loop.safetensors", cache=cache)


def test_missing_config_is_refused(folder: Path, cache: Path) -> None:
    (folder / "config.json").unlink()
    refused(folder, "config.json cannot be read: No such file", cache=cache)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "."])
def test_files_without_read_permission_are_refused(folder: Path, cache: Path, name: str) -> None:
    (folder / name).chmod(0)
    with without_root_rights():
        refused(folder, "cannot be read", cache=cache)
    (folder / name).chmod(0o700)


def test_a_git_lfs_pointer_is_refused(folder: Path, cache: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    refused(folder, "git-lfs pointer", "git lfs pull", cache=cache)


def test_a_file_truncated_anywhere_is_refused(folder: Path, cache: Path, seed: int) -> None:
    file = folder / "model.safetensors"
    whole, header = file.read_bytes(), 8 + int.from_bytes(file.read_bytes()[:8], "little")
    draw = random.Random(seed)
    lengths = [0, 1, 7, 8, 9, header - 1, header, len(whole) // 2, len(whole) - 1]
    for length in lengths + [draw.randrange(len(whole)) for _ in range(20)]:
        file.write_bytes(whole[:length])
        refused(folder, "is truncated" if length else "is empty", cache=cache)
    file.write_bytes(whole + b"\0")
    refused(folder, "truncated or not", cache=cache)


def test_a_damaged_header_raises_only_lab_errors(folder: Path, cache: Path, seed: int) -> None:
    """A damaged header is refused, or it is still consistent; no other exception than LabError is raised."""
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    draw = random.Random(seed)
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[draw.randrange(header)] = draw.randrange(256)
        file.write_bytes(damaged)
        with contextlib.suppress(LabError):
            load(str(folder), None, None, cache)


def test_missing_or_extra_tensors_and_wrong_shapes_or_dtypes_are_refused(folder: Path, cache: Path, seed: int) -> None:
    name = random.Random(seed).choice(sorted(tensors()))
    for change, words in (
        ({name: None}, ("lacks tensor", name)),
        ({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}, ("1 tensor(s) more", "q_proj.bias")),
        ({"evil\n\x1b[31mname": torch.zeros(1)}, ("evil\\n\\x1b",)),
        ({name: tensors()[name][:-1].clone()}, (name, "shape")),
        ({name: tensors()[name][None].clone()}, (name, "shape")),
        ({name: tensors()[name].to(torch.int8)}, (name, "I8")),
        ({name: tensors()[name].double()}, (name, "F64")),
    ):
        save(folder, {key: tensor for key, tensor in (tensors() | change).items() if tensor is not None})
        refused(folder, *words, cache=cache)


@pytest.mark.parametrize(
    ("dtype", "bad"),
    [
        *itertools.product((torch.bfloat16, torch.float16, torch.float32), ("nan", "inf", "-inf")),
        (torch.float32, "3.4e38"),
    ],
    ids=str,
)
def test_nan_and_infinite_weights_are_refused(
    folder: Path, cache: Path, seed: int, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bad: str
) -> None:
    weights, draw = tensors(seed, dtype), random.Random(seed)
    monkeypatch.setattr("common.model.tensors.BLOCK", draw.choice([7, 100, 1 << 15]))
    name = draw.choice(sorted(weights))
    places = sorted(draw.sample(range(weights[name].numel()), 2))
    weights[name].view(-1)[places] = float(bad)
    save(folder, weights)
    columns = weights[name].shape[-1]
    first = [places[0]] if weights[name].dim() == 1 else [places[0] // columns, places[0] % columns]
    refused(folder, name, f"at {first}", "is 3.39" if bad == "3.4e38" else f"is {bad}", cache=cache)


def test_a_given_model_must_match_the_config(folder: Path, cache: Path) -> None:
    for field, value in {
        "hidden": 64, "intermediate": 64, "layers": 3, "heads": 8, "kv_heads": 4, "head_dim": 8, "vocab": 65,
        "rope_theta": 1e4, "rms_eps": 1e-5, "tied": True,
    }.items():  # fmt: skip
        given = Model(**{**vars(MODEL), field: value})
        refused(folder, f"config.json differ in {field}; give model=auto", cache=cache, model=given)
    model, _, _ = load(str(folder), Model(**{**vars(MODEL), "name": "mine", "positions": 64}), None, cache)
    assert (model.name, model.positions) == ("mine", 64)


def test_sharded_checkpoints(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "ckpt"
    where = shard(folder)
    first, second = sorted(set(where.values()))
    assert find(str(folder)).tensors.keys() == where.keys()

    for outside in ("../other/model.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ""):
        write_index(folder, where | {"lm_head.weight": outside})
        refused(folder, "own folder", cache=cache)
    for broken in ({}, [], None, {"lm_head.weight": 3}):
        write_index(folder, broken)
        refused(folder, "weight_map", cache=cache)
    write_index(folder, dict.fromkeys(where, first))
    refused(folder, "lacks tensor", cache=cache)
    write_index(folder, where)
    save_file(tensors(), folder / second)
    refused(folder, "is in both", first, second, cache=cache)
    (folder / second).unlink()
    refused(folder, second, "download the missing shard", cache=cache)


def test_hub_ids_are_downloaded(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    downloaded, every = [], ["*.json", "*.safetensors", "*.txt", "*.jinja"]

    def snapshot(repo: str, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        downloaded.append((repo, revision, allow_patterns))
        files = [
            "model-1.safetensors",
            "consolidated.safetensors",
            "consolidated-1.safetensors",
            "original/params.json",
        ]
        kept = hub.utils.filter_repo_objects(files, allow_patterns=every, ignore_patterns=ignore_patterns)
        assert [*kept] == ["model-1.safetensors"]  # the weights once
        assert not any(re.search(r"\.(py|bin|pt|\*)$", pattern) for pattern in allow_patterns)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    model, _, _ = load("Owner/Qwen3-Hand@refs/pr/1", None, None, cache)
    assert model == Model(**{**vars(MODEL), "name": "Qwen3-Hand"})
    assert downloaded == [("Owner/Qwen3-Hand", "refs/pr/1", ["config.json"]), ("Owner/Qwen3-Hand", "refs/pr/1", every)]

    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    with pytest.raises(LabError, match="model_type 'llama'"):
        find("Owner/Other")
    assert downloaded[-1] == ("Owner/Other", None, ["config.json"])  # and no weights

    def offline(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with pytest.raises(LabError, match=r"no such path.*ConnectionError: no route to host.*network"):
        find("Owner/Qwen3-Hand")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LabError, match="pip install huggingface_hub"):
        find("Owner/Qwen3-Hand")
