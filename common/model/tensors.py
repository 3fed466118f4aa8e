"""Tensors of a checkpoint: checked by their headers, and read into the layout of the kernels."""

import math
import re
from collections.abc import Iterable, Iterator

from common.cache.weight_files import BLOCK
from common.errors import LabError
from common.lazy import torch
from common.model.checkpoint import AGAIN, DTYPES, Checkpoint, open_safetensors
from common.model.layout import Layout
from common.model.quantization import USE, Quantization
from common.model.slot import Slot

Slots = Iterable[tuple[str, Slot]]  # places of tensors by their Hugging Face names
BIAS, HEAD = "bias", "lm_head.weight"
LAYERS = r"(model\.)?layers\.\d+\."
# Tensors of quantized checkpoints for activations, which stay fp32 here, and for a cache in fp8, which is kv_format=.
UNUSED = re.compile(rf"{LAYERS}(mlp|self_attn)\.(\w+_proj\.(input|output)_(scale|zero_point)|[qkv]_(scale|zero_point))")
# Buffers that old converters stored: every loader makes them anew.
BUFFERS = re.compile(
    rf"(model\.|{LAYERS}self_attn\.)?rotary_emb\.(inv_freq|(cos|sin)_cached)|{LAYERS}(self_)?attn\.(masked_)?bias"
)


def check_headers(checkpoint: Checkpoint, layout: Layout, slots: Slots, quantization: Quantization | None) -> None:
    """Raise LabError unless the checkpoint holds exactly the model's tensors, in their shapes and known dtypes."""
    known, spare = set(), set()
    for name, slot in slots:
        quantized = quantization if slot.format.scaled else None
        if quantized:
            if (entry := checkpoint.tensors.get(name)) and entry.dtype in DTYPES:
                raise LabError(
                    f"{checkpoint.folder} leaves {name} in {entry.dtype}: kernels have one format for all layers",
                    f"{USE}; or quantize this matrix, too",
                )
            spare.add(_part(name, BIAS))  # AutoGPTQ gives every matrix one; `read_tensors` reads it
        parts = quantized.shapes(*slot.shape) if quantized else {name.rpartition(".")[2]: (slot.shape, DTYPES)}
        for part, (shape, dtypes) in parts.items():
            tensor = _part(name, part)
            entry = checkpoint.tensors.get(tensor)
            if entry is None:
                raise _lacking(checkpoint, tensor, name)
            if entry.dtype not in dtypes:
                plain = f"use a checkpoint in {', '.join(DTYPES)}, or one whose config.json says how it is quantized"
                cause = f"tensor {tensor!r} in {entry.file} has dtype {entry.dtype}"
                raise LabError(cause, f"give one with {' or '.join(dtypes)}" if quantized else plain)
            _check_shape(tensor, entry.shape, shape, checkpoint)
            known.add(tensor)
    extra = {
        name
        for name in checkpoint.tensors.keys() - known - spare
        if not BUFFERS.fullmatch(name) and not (quantization and UNUSED.fullmatch(name))
    }
    if layout.model.tied and HEAD in extra:
        # Published tied checkpoints carry a copy of the embedding; `read_tensors` compares them.
        _check_shape(HEAD, checkpoint.tensors[HEAD].shape, layout.weight("embed").shape, checkpoint)
        extra -= {HEAD}
    if extra:
        raise LabError(
            f"{checkpoint.folder} has {len(extra)} tensor(s) more than the model, the first {min(extra)!r}",
            "use the config.json and the weights of one and the same model",
        )


def _lacking(checkpoint: Checkpoint, tensor: str, name: str) -> LabError:
    """The error for a missing tensor. name: the weight that it holds, in whole or in part."""
    others = sorted(each for each in checkpoint.tensors if each.startswith(name.removesuffix("weight")))
    has = f" and has {others[0]}" if others else ""
    of_head = "; or set tie_word_embeddings if the head is the embedding" if name == HEAD else ""
    config = "; or correct quantization_config" if others else of_head
    return LabError(f"{checkpoint.folder} lacks tensor {tensor}{has}", AGAIN + config)


def _part(name: str, part: str) -> str:
    """The name of another tensor of the same matrix: q_proj.weight, q_proj.weight_scale."""
    return f"{name.rpartition('.')[0]}.{part}"


def _check_shape(name: str, got: tuple[int, ...], want: tuple[int, ...], checkpoint: Checkpoint) -> None:
    if got != want:
        raise LabError(
            f"tensor {name} has shape {list(got)}, but {checkpoint.config} makes it {list(want)}",
            "use the config.json and the weights of one and the same model",
        )


def read_tensors(
    checkpoint: Checkpoint, layout: Layout, slots: Slots, quantization: Quantization | None
) -> "Iterator[tuple[int, torch.Tensor]]":
    """Yield (offset in the packed buffer, bf16 [n]) of every tensor, in blocks. Raises LabError for NaN and Inf."""
    places = dict(slots)
    files = {file: open_safetensors(file) for file in checkpoint.files}
    stored = {name: files[entry.file] for name, entry in checkpoint.tensors.items()}
    if layout.model.tied and HEAD in stored:
        embed, head = (stored[name].get_tensor(name).bfloat16() for name in ("model.embed_tokens.weight", HEAD))
        if not torch.equal(head.view(torch.int16), embed.view(torch.int16)):
            raise LabError(
                f"{checkpoint.config} ties the head to the embedding, but lm_head.weight differs from it",
                "set tie_word_embeddings to false if the head is its own",
            )
    for name, slot in places.items():
        if quantization and slot.format.scaled:
            spare = _part(name, BIAS)
            if spare in stored and spare not in places and stored[spare].get_tensor(spare).any():
                raise LabError(f"tensor {spare} is not 0", "the model has no such bias; use its bf16 checkpoint")
            parts = {part: _part(name, part) for part in quantization.shapes(*slot.shape)}
            tensors = {part: stored[tensor].get_tensor(tensor) for part, tensor in parts.items()}
            yield slot.offset, quantization.rows(tensors, name).reshape(-1)
            continue
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
    first = int(torch.isfinite(rounded).logical_not().nonzero()[0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(start + first), shape)]
    return LabError(f"tensor {name} is {float(block[first]):.9g} at {index}, which bf16 cannot hold", AGAIN)
