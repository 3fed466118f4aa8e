"""Hugging Face checkpoints: their place, and the headers of their safetensors files. Never unpickles."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import LabError
from common.model.hf_config import read_json, read_model

SINGLE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
DTYPES = ("BF16", "F16", "F32")  # weights that are not quantized, as safetensors spells them
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
HUB_ID = re.compile(r"(?P<owner>\w[\w.-]*)/(?P<name>\w[\w.-]*)(?:@(?P<revision>\w[\w./-]*))?", re.ASCII)
SECOND = ["consolidated*", "original/*"]  # the weights again, in their authors' own form: Mistral's, Llama's
AGAIN = "download or save the checkpoint again"


@dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint: its file, its dtype as safetensors spells it, and its shape."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A readable checkpoint. `files` hold all `tensors`; `folder` has the config.json and perhaps a tokenizer."""

    name: str
    folder: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, Entry]

    @property
    def config(self) -> Path:
        """The config.json that goes with the tensors."""
        return self.folder / CONFIG


def find(spec: str) -> Checkpoint:
    """The checkpoint at `spec`: a folder, one .safetensors file, or a hub id `owner/name[@revision]`.

    A folder holds model.safetensors, or an index and its shards; a file has its config.json beside it. The hub is
    queried only when `spec` looks like an id, is no path and does not start with an existing folder.
    Raises LabError: nothing there, pickled weights, unreadable or malformed files, an index that does not fit.
    """
    path = Path(os.path.expanduser(spec))  # a user that there is not stays as written
    try:
        if not spec.strip() or not path.exists():
            path, name = _download(spec)
        else:
            name = (path if path.is_dir() else path.absolute().parent).resolve().name
        files = _files_of(path)
        return Checkpoint(name, path if path.is_dir() else path.absolute().parent, files, _read_headers(files))
    except OSError as error:
        raise LabError(
            f"{path} cannot be read: {error.strerror or error}", "check the path and its permissions"
        ) from error


def open_safetensors(file: Path) -> Any:
    """`file` opened by safetensors, memory-mapped, tensors for torch.

    Raises LabError: unreadable, empty, truncated, a git-lfs pointer, or another format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with file.open("rb") as stream:
            head = stream.read(64)
        if not head:
            raise LabError(f"{file} is empty", AGAIN)
        if head.startswith(b"version https://git-lfs"):
            raise LabError(
                f"{file} is a git-lfs pointer, not the weights", f"run `git lfs pull` in {file.absolute().parent}"
            )
        return safe_open(file, framework="pt")
    except OSError as error:
        raise LabError(
            f"{file} cannot be read: {error.strerror or error}", "check the file and its permissions"
        ) from error
    except SafetensorError as error:
        raise LabError(f"{file} is truncated or not a safetensors file ({error})", AGAIN) from error


def _files_of(path: Path) -> tuple[Path, ...]:
    """The safetensors file at `path`, or those of a folder: one, or the shards of an index.

    A tensor counts where it is, whatever `weight_map` says.
    """
    index, remedy = path / INDEX, "give a folder that transformers' save_pretrained wrote, or one .safetensors file"
    single = path / SINGLE if path.is_dir() else path
    if single.exists():
        if single.suffix != ".safetensors":
            raise LabError(f"{path} is not a .safetensors file", remedy)
        return (single,)
    if not index.exists():
        pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
        found = f", but pickled weights, which can run code when they are read: {pickled[0]}" if pickled else ""
        raise LabError(f"{path} has neither {SINGLE} nor {INDEX}{found}", remedy)
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where or not all(isinstance(shard, str) for shard in where.values()):
        raise LabError(f"{index} has no weight_map of tensor names to file names", AGAIN)
    shards = sorted(set(where.values()))
    for shard in shards:
        # A bare name cannot leave the folder. In the hub's own cache it is a link to a file elsewhere, which is legal.
        if Path(shard).name != shard or not (path / shard).is_file():
            raise LabError(f"{index} names {shard!r}, which is no file in its own folder", "download the missing shard")
    return tuple(path / shard for shard in shards)


def _read_headers(files: tuple[Path, ...]) -> dict[str, Entry]:
    """Every tensor of `files`. Raises LabError for duplicates."""
    tensors: dict[str, Entry] = {}
    for file in files:
        with open_safetensors(file) as stored:
            for tensor in stored.keys():  # noqa: SIM118  not a mapping
                header = stored.get_slice(tensor)
                entry = Entry(file, header.get_dtype(), tuple(header.get_shape()))
                if tensor in tensors:
                    raise LabError(f"tensor {tensor!r} is in both {tensors[tensor].file} and {file}", AGAIN)
                tensors[tensor] = entry
    return tensors


def _download(spec: str) -> tuple[Path, str]:
    """The folder of a hub id's snapshot, and the model's name; other architectures are refused before the weights.

    The client shows its progress, and resumes an interrupted download. Raises LabError: no such path, no client, no
    answer, another architecture.
    """
    hub_id = HUB_ID.fullmatch(spec)
    if hub_id is None or Path(hub_id["owner"]).is_dir():
        raise LabError(
            f"weights {spec!r}: there is no such file or folder",
            "give a checkpoint's folder, a .safetensors file, a hub id like Qwen/Qwen3-0.6B, or `synthetic`",
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise LabError(
            f"weights {spec!r}: no such path, and a hub id needs huggingface_hub", "pip install huggingface_hub"
        ) from error

    def snapshot(*patterns: str) -> Path:
        repository, revision = f"{hub_id['owner']}/{hub_id['name']}", hub_id["revision"]
        only = [*patterns]
        try:
            return Path(snapshot_download(repository, revision=revision, allow_patterns=only, ignore_patterns=SECOND))
        except Exception as error:  # the client, its HTTP library and the OS raise a dozen unrelated types
            raise LabError(
                f"weights {spec!r}: no such path, and the download from the hub failed "
                f"({type(error).__name__}: {error})",
                "check the id and the network, or download it elsewhere and give the folder",
            ) from error

    read_model(snapshot(CONFIG) / CONFIG, hub_id["name"], None)
    return snapshot("*.json", "*.safetensors", "*.txt", "*.jinja"), hub_id["name"]  # weights, tokenizer; no code
