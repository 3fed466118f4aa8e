"""Packed weights, the one buffer that the kernels read, from a checkpoint or synthetic."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from common.cache.sources import sources_sha
from common.cache.weight_files import BLOCK, content_sha, mapped
from common.errors import LabError
from common.lazy import torch
from common.model import synthetic
from common.model.checkpoint import Checkpoint, find
from common.model.hf_config import read_json, read_model
from common.model.layout import Layout
from common.model.quantized_layouts import read_quantization
from common.model.shapes import Model
from common.model.slot import Slot
from common.model.tensors import check_headers, read_tensors

Formats = tuple[str | None, str, str]
SOURCES = "common/model/*.py"  # that read, round and pack weights
SYNTHETIC, PLAIN = "synthetic", "bf16"


@dataclass(frozen=True)
class PackedWeights:
    """The weights of one model in the kernels' layout.

    sha     sha256 of the source's content: of the .safetensors file itself, as sha256sum prints it; of the shards'
            hashes joined in the order of their names; or of the recipe of synthetic weights. With quantized ones their
            `quantization_config`, which says what the bytes mean, is hashed, too.
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
    formats: Formats | None = None,
    check: Callable[[Model], None] = lambda model: None,
) -> tuple[Model, Layout, PackedWeights]:
    """The model, its layout and its weights.

    spec: "synthetic" (then `model` must be given, and `seed` counts), a folder, a .safetensors file or a hub id.
    model: None takes the shapes from the checkpoint's config.json; otherwise they must agree with it.
    positions: size of the KV cache; None: the model's own, or the choice of `read_model`.
    cache_dir: folder of packed weights, one file for each content and layout; safe to delete. fp16 and fp32
    weights are rounded to bf16, to nearest even, once, when packed; then to the nearest numbers of a format below it.
    formats: of the layers' matrices, None as they are stored, of the LM head, and of the KV cache; None: those of
    `model`, and without one as they are stored.
    check: called with the model of a checkpoint before its weights are read.
    Raises LabError for any fault of the checkpoint, for another format than that of one that is quantized, and if the
    cache cannot be written; with synthetic weights the latter at their first use.
    """
    stored, layout, packed = _load_stored(spec, model and model.in_formats(), positions, cache_dir, seed, check)
    form, head, kv = formats or ((model.format, model.head_format, model.kv_format) if model else (None, PLAIN, PLAIN))
    if stored.format not in (PLAIN, form or stored.format):
        raise LabError(f"{packed.source} has weights in {stored.format}, not {form}", "leave format= out")
    found = stored.in_formats(form or stored.format, head, kv)
    target = Layout(found)
    target.check_memory()
    if (found.format, found.head_format) == (stored.format, stored.head_format):
        return found, target, packed
    file = _file(cache_dir, packed.sha, target)

    def pack() -> "torch.Tensor":
        return mapped(file, target.weights_size, pieces(packed.flat, layout, target))

    return found, target, replace(packed, pack=pack)


def _load_stored(
    spec: str, model: Model | None, positions: int | None, cache_dir: Path, seed: int, check: Callable[[Model], None]
) -> tuple[Model, Layout, PackedWeights]:
    """The model, its layout and its weights in the formats in which they are stored; `model` has none."""
    if positions is None and model is not None:
        positions = model.positions
    if spec == SYNTHETIC:
        if model is None:
            raise LabError("synthetic weights have no shapes of their own", "choose a model, for example model=tiny")
        model = model if positions is None else replace(model, positions=positions)
        layout = Layout(model)
        layout.check_memory()
        source, folder = f"synthetic version {synthetic.VERSION} seed {seed}", None
        sha = _sha(f"{source} {_shapes(layout)}")
        parts = partial(synthetic.pieces, layout, seed)
    else:
        checkpoint = find(spec)
        model = _agree(model, read_model(checkpoint.config, checkpoint.name, positions), checkpoint)
        check(model)
        quantization = read_quantization(checkpoint, read_json(checkpoint.config), model)
        if quantization:
            model = model.in_formats(str(quantization.format), PLAIN)
        layout = Layout(model)
        check_headers(checkpoint, layout, hf_slots(layout), quantization)
        layout.check_memory()
        source, folder = str(checkpoint.folder if len(checkpoint.files) > 1 else checkpoint.files[0]), checkpoint.folder
        sha = content_sha(checkpoint.files, cache_dir)
        sha = _sha(f"{sha} read as {quantization.reading}") if quantization else sha
        parts = partial(read_tensors, checkpoint, layout, hf_slots(layout), quantization)
    file = _file(cache_dir, sha, layout)
    packed = PackedWeights(sha, source, folder, lambda: mapped(file, layout.weights_size, parts()))
    if folder:
        packed.flat  # noqa: B018  raises LabError for NaN and Inf
    return model, layout, packed


def recoded(weights: "torch.Tensor", layout: Layout, target: Layout) -> "torch.Tensor":
    """`weights` (flat, of `layout`) as flat weights of `target`, of the same shapes: bf16, [its weights_size]."""
    flat = torch.zeros(target.weights_size, dtype=torch.bfloat16)
    for offset, piece in pieces(weights, layout, target):
        flat[offset : offset + len(piece)] = piece
    return flat


def pieces(weights: "torch.Tensor", layout: Layout, target: Layout) -> "Iterator[tuple[int, torch.Tensor]]":
    """Yield (offset in flat weights of `target`, bf16 [n]) of every tensor, some rows at a time; as in `recoded`."""
    for name, layer in target.tensors():
        before, after = layout.weight(name, layer), target.weight(name, layer)
        if before.format == after.format:  # bit by bit: numbers and scales are not made anew
            yield after.offset, weights[before.offset : before.offset + before.size]
            continue
        rows, columns = before.shape
        some = max(1, BLOCK // columns)
        for begin in range(0, rows, some):
            count = min(some, rows - begin)
            encoded = after.format.encode(before.rows(begin, count).of(weights))
            yield after.rows(begin, count).offset, encoded.reshape(-1)


def hf_slots(layout: Layout) -> Iterator[tuple[str, Slot]]:
    """Every tensor of a model by its Hugging Face name, with its place and shape in the packed buffer.

    A tied head has no tensor. The rows of q, k and v follow one another in the layout's `qkv`, and in its `qkv_bias`.
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
            if slot.size:
                yield f"model.layers.{layer}.{name}.weight", slot
        if m.qkv_bias:
            bias = layout.weight("qkv_bias", layer)
            for part, begin, count in (("q", 0, m.query), ("k", m.query, m.kv), ("v", m.query + m.kv, m.kv)):
                yield f"model.layers.{layer}.self_attn.{part}_proj.bias", bias.rows(begin, count)
    yield "model.norm.weight", layout.weight("final_norm")
    if not layout.tied:
        yield "lm_head.weight", layout.weight("lm_head")


def _agree(wanted: Model | None, found: Model, checkpoint: Checkpoint) -> Model:
    """`wanted` with the positions of `found`; `found` if `wanted` is None. Raises LabError if their shapes differ."""
    own = replace(wanted or found, positions=found.positions)
    differ = [name for name, value in vars(found).items() if name != "name" and getattr(own, name) != value]
    if differ:
        raise LabError(
            f"model {own.name} and {checkpoint.config} differ in {', '.join(differ)}",
            "give model=auto, which takes the shapes from config.json, or the checkpoint of that model",
        )
    return own


def _file(cache_dir: Path, sha: str, layout: Layout) -> Path:
    """The packed file of weights: what they are, where they go, and the code that takes them there."""
    return cache_dir / f"{_sha(f'{sources_sha(SOURCES)} {sha} {_shapes(layout)}')}.bf16"


def _shapes(layout: Layout) -> str:
    """Text of all shapes, offsets and formats, for the key of a packed file."""
    slots = [
        (name, slot.offset, slot.shape, *([str(slot.format)] if slot.format.scaled else []))
        for name, slot in hf_slots(layout)
    ]
    return f"{layout.weights_size} {slots}"


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
