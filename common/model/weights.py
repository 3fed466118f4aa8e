"""Packed weights, the one buffer that the kernels read, from a checkpoint or synthetic."""

import hashlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from common.cache.weight_files import BLOCK, content_sha, file_sha, mapped
from common.errors import LabError
from common.model import synthetic
from common.model.checkpoint import AGAIN, Checkpoint, find, open_safetensors
from common.model.hf_config import read_model
from common.model.layout import Layout, Slot
from common.model.recoded import pieces, plain
from common.model.shapes import Model

if TYPE_CHECKING:  # and at its use: a run only names synthetic weights; its workers pack them
    import torch

PLAIN = "bf16"
PACKING = 1  # version of the packed form; a new one outdates every cached file


@dataclass(frozen=True)
class PackedWeights:
    """The weights of one model in the kernels' layout.

    sha     sha256 of the source's content: of the .safetensors file itself, as sha256sum prints it; of the shards'
            hashes joined in the order of their names; or of the recipe of synthetic weights.
    source  their origin for messages: a path, or "synthetic version 1 seed 0".
    folder  the checkpoint's folder, which may hold a tokenizer; None for synthetic weights.
    pack    maps the packed file, and writes it first if it is missing.
    """

    sha: str
    source: str
    folder: Path | None
    pack: "Callable[[], torch.Tensor]"

    @cached_property
    def flat(self) -> "torch.Tensor":
        """bf16, [layout.weights_size], on the CPU, memory-mapped; the gaps between tensors are zero.

        Read-only by agreement: a write would be private to this process and not reach the file.
        """
        return self.pack()


def load(
    spec: str,
    model: Model | None,
    positions: int | None,
    cache_dir: Path,
    seed: int = 0,
    formats: tuple[str, str] | None = None,
) -> tuple[Model, Layout, PackedWeights]:
    """The model, its layout and its weights; rounded to its formats where they are below bf16 (`Format.encode`).

    formats: `format` and `head_format` of the model; None: its own, and bf16 for one that the checkpoint brings.
    As for the rest, see `_load_plain`.
    """
    wanted = formats or (model.format, model.head_format) if model else formats or (PLAIN, PLAIN)
    found, layout, packed = _load_plain(spec, model and plain(model), positions, cache_dir, seed)
    if wanted == (PLAIN, PLAIN):
        return found, layout, packed
    named = found.in_formats(*wanted)
    found = replace(named, name=model.name) if model and not formats else named
    target = Layout(found)
    target.check_memory()
    key = hashlib.sha256(f"packing {PACKING} {packed.sha} {_shapes(target)} {' '.join(wanted)}".encode()).hexdigest()

    def pack() -> "torch.Tensor":
        return mapped(cache_dir / f"{key}.bf16", target.weights_size, pieces(packed.flat, layout, target))

    return found, target, replace(packed, pack=pack)


def _load_plain(
    spec: str, model: Model | None, positions: int | None, cache_dir: Path, seed: int
) -> tuple[Model, Layout, PackedWeights]:
    """The model, its layout and its weights in bf16.

    spec: "synthetic" (then `model` must be given, and `seed` counts), a folder, a .safetensors file or a hub id.
    model: None takes the shapes from the checkpoint's config.json; otherwise they must agree with it.
    positions: size of the KV cache; None: the model's own, or the choice of `read_model`.
    cache_dir: folder of packed weights, one file for each content and layout; safe to delete. fp16 and fp32
    weights are rounded to bf16, to nearest even, once, when packed.
    Raises LabError for any fault of the checkpoint, and if the cache cannot be written; with synthetic weights the
    latter at their first use.
    """
    if positions is None and model is not None:
        positions = model.positions
    if spec == "synthetic":
        if model is None:
            raise LabError("synthetic weights have no shapes of their own", "choose a model, for example model=tiny")
        model = model if positions is None else replace(model, positions=positions)
        layout = Layout(model)
        layout.check_memory()
        source, folder = synthetic.recipe(seed), None
        sha = hashlib.sha256(f"{source} {_shapes(layout)}".encode()).hexdigest()
        parts = partial(synthetic.pieces, layout, seed)
    else:
        checkpoint = find(spec)
        model = _agree(model, read_model(checkpoint.config, checkpoint.name, positions), checkpoint)
        layout = Layout(model)
        _check_headers(checkpoint, layout)
        layout.check_memory()
        source, folder = str(checkpoint.folder if len(checkpoint.files) > 1 else checkpoint.files[0]), checkpoint.folder
        _check_downloads(checkpoint, cache_dir)
        sha = content_sha(checkpoint.files, cache_dir)
        parts = partial(_read, checkpoint, layout)
    key = hashlib.sha256(f"packing {PACKING} {sha} {_shapes(layout)}".encode()).hexdigest()
    file = cache_dir / f"{key}.bf16"
    packed = PackedWeights(sha, source, folder, lambda: mapped(file, layout.weights_size, parts()))
    if folder:
        packed.flat  # noqa: B018  raises LabError for NaN and Inf
    return model, layout, packed


def hf_slots(layout: Layout) -> Iterator[tuple[str, Slot]]:
    """Every tensor of a model by its Hugging Face name, with its place and shape in the packed buffer.

    A tied head has no tensor. The rows of q, k and v follow one another in the layout's `qkv`.
    """
    m = layout.model
    yield "model.embed_tokens.weight", layout.weight("embed")
    for layer in range(m.layers):
        qkv = layout.weight("qkv", layer)
        for name, slot in {
            "input_layernorm": layout.weight("input_norm", layer),
            "self_attn.q_proj": qkv.rows(0, m.query),
            "self_attn.k_proj": qkv.rows(m.query, m.kv),
            "self_attn.v_proj": qkv.rows(m.query + m.kv, m.kv),
            "self_attn.q_norm": layout.weight("q_norm", layer),
            "self_attn.k_norm": layout.weight("k_norm", layer),
            "self_attn.o_proj": layout.weight("o", layer),
            "post_attention_layernorm": layout.weight("post_norm", layer),
            "mlp.gate_proj": layout.weight("gate", layer),
            "mlp.up_proj": layout.weight("up", layer),
            "mlp.down_proj": layout.weight("down", layer),
        }.items():
            yield f"model.layers.{layer}.{name}.weight", slot
    yield "model.norm.weight", layout.weight("final_norm")
    if not layout.tied:
        yield "lm_head.weight", layout.weight("lm_head")


def _agree(wanted: Model | None, found: Model, checkpoint: Checkpoint) -> Model:
    """`wanted` with the positions of `found`; `found` if `wanted` is None. Raises LabError if their shapes differ."""
    if wanted is None:
        return found
    for field in fields(Model):
        want, got = getattr(wanted, field.name), getattr(found, field.name)
        if field.name not in ("name", "positions") and want != got:
            raise LabError(
                f"model {wanted.name} has {field.name} {want}, but {checkpoint.config} says {got}",
                "omit the model, so that the shapes come from config.json; or give the checkpoint of that model",
            )
    return replace(wanted, positions=found.positions)


def _check_downloads(checkpoint: Checkpoint, cache_dir: Path) -> None:
    """Raise LabError for a damaged file of the hub's cache: its link has its sha256 as name."""
    for file in checkpoint.files:
        blob = file.resolve()
        named = file.is_symlink() and re.fullmatch("[0-9a-f]{64}", blob.name)
        if named and file_sha(blob, cache_dir) != blob.name:
            raise LabError(f"{file} is damaged: its sha256 is not {blob.name}", f"remove {blob} and start again")


def _check_headers(checkpoint: Checkpoint, layout: Layout) -> None:
    """Raise LabError unless the checkpoint holds exactly the model's tensors, in their shapes."""
    known = set()
    for name, slot in hf_slots(layout):
        entry = checkpoint.tensors.get(name)
        if entry is None:
            hint = "; or set tie_word_embeddings if the head is the embedding" if name == "lm_head.weight" else ""
            raise LabError(f"{checkpoint.folder} lacks tensor {name}", AGAIN + hint)
        _check_shape(name, entry.shape, slot.shape, checkpoint)
        known.add(name)
    extra = checkpoint.tensors.keys() - known
    if layout.model.tied and "lm_head.weight" in extra:
        # Published tied checkpoints carry a copy of the embedding; `_read` compares them.
        _check_shape(
            "lm_head.weight", checkpoint.tensors["lm_head.weight"].shape, layout.weight("embed").shape, checkpoint
        )
        extra -= {"lm_head.weight"}
    if extra:
        raise LabError(
            f"{checkpoint.folder} has {len(extra)} tensor(s) more than the model, the first {min(extra)!r}",
            "use the config.json and the weights of one and the same dense Qwen3 model",
        )


def _check_shape(name: str, got: tuple[int, ...], want: tuple[int, ...], checkpoint: Checkpoint) -> None:
    if got != want:
        raise LabError(
            f"tensor {name} has shape {list(got)}, but {checkpoint.config} makes it {list(want)}",
            "use the config.json and the weights of one and the same model",
        )


def _read(checkpoint: Checkpoint, layout: Layout) -> "Iterator[tuple[int, torch.Tensor]]":
    """Yield (offset in the packed buffer, bf16 [n]) of every tensor, in blocks. Raises LabError for NaN and Inf."""
    import torch

    files = {file: open_safetensors(file) for file in checkpoint.files}
    stored = {name: files[entry.file] for name, entry in checkpoint.tensors.items()}
    if layout.model.tied and "lm_head.weight" in stored:
        embed, head = (stored[name].get_tensor(name) for name in ("model.embed_tokens.weight", "lm_head.weight"))
        if head.dtype != embed.dtype or not torch.equal(head.view(torch.uint8), embed.view(torch.uint8)):
            raise LabError(
                f"{checkpoint.config} ties the head to the embedding, but lm_head.weight differs from it",
                "set tie_word_embeddings to false if the head is its own",
            )
    for name, slot in hf_slots(layout):
        for start, block in enumerate(stored[name].get_tensor(name).reshape(-1).split(BLOCK)):
            rounded = block.bfloat16()
            # One pass without temporaries: NaN and Inf both show up in the extremes.
            if not all(math.isfinite(extreme) for extreme in torch.aminmax(rounded)):
                raise _not_finite(name, block, rounded, start * BLOCK, slot.shape)
            yield slot.offset + start * BLOCK, rounded


def _not_finite(
    name: str, block: "torch.Tensor", rounded: "torch.Tensor", start: int, shape: tuple[int, ...]
) -> LabError:
    """The error for the first weight of `block` that is NaN or Inf in bf16; `block` begins at element `start`."""
    import torch

    first = int(torch.isfinite(rounded).logical_not().nonzero()[0])
    value = float(block[first])
    index = [int(i) for i in torch.unravel_index(torch.tensor(start + first), shape)]
    if torch.isfinite(block[first]):
        return LabError(
            f"tensor {name} is {value:.9g} at {index}, beyond bf16", "the kernels read bf16; rescale the model"
        )
    return LabError(f"tensor {name} is {value} at {index}", AGAIN)


def _shapes(layout: Layout) -> str:
    """Text of all shapes and offsets, for the key of a packed file."""
    return f"{layout.weights_size} {[(name, slot.offset, slot.shape) for name, slot in hf_slots(layout)]}"
