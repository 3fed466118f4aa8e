"""Checkpoints in the published layouts of quantized matrices, made word by word or by their own library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import CONFIG, save

SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32, "vocab_size": 96}
GROUP = 32

Tensors = dict[str, torch.Tensor]
Parts = Tensors  # tensors of a matrix, by the last part of their names
Maker = Callable[[int, int, torch.Generator], tuple[Parts, torch.Tensor]]  # rows, columns -> parts, weights in float64


def packed(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 words of unsigned numbers [rows, columns], the first in the lowest bits."""
    each = 32 // bits
    words = numbers.long().view(len(numbers), -1, each) << torch.arange(0, 32, bits)
    return words.sum(2).to(torch.int64).to(torch.int32)


def fp8(rows: int, columns: int, random: torch.Generator) -> tuple[Parts, torch.Tensor]:
    weight = (torch.randn(rows, columns, generator=random) * 60).clamp(-448, 448).to(torch.float8_e4m3fn)
    weight[0, :5] = torch.tensor([0.0, 2.0**-9, -(2.0**-9), 7 * 2.0**-9, 448]).to(torch.float8_e4m3fn)
    scale = (torch.rand(-(-rows // 128), -(-columns // 128), generator=random) / 400 + 1e-3).bfloat16()
    block = torch.arange(max(rows, columns)) // 128
    return {"weight": weight, "weight_scale_inv": scale}, weight.double() * scale.double()[block[:rows]][
        :, block[:columns]
    ]


def drawn(rows: int, columns: int, bits: int, random: torch.Generator, least: int = 0) -> tuple[torch.Tensor, ...]:
    """Numbers [rows, columns], zero points from `least` on and scales [rows, groups], and the weights that they are."""
    groups = columns // GROUP
    numbers = torch.randint(2**bits, (rows, columns), generator=random)
    zeros = torch.randint(least, 2**bits, (rows, groups), generator=random)
    scales = (torch.rand(rows, groups, generator=random) / 2**bits / 8 + 2.0**-12).half()
    weights = (numbers - zeros.repeat_interleave(GROUP, 1)).double() * scales.repeat_interleave(GROUP, 1).double()
    return numbers, zeros, scales, weights


def gptq(bits: int, version: int) -> Maker:
    def make(rows: int, columns: int, random: torch.Generator) -> tuple[Parts, torch.Tensor]:
        less = int(version == 1)  # a zero point of 0 would be stored as -1
        numbers, zeros, scales, weights = drawn(rows, columns, bits, random, less)
        parts = {
            "qweight": packed(numbers, bits).T.contiguous(),
            "qzeros": packed(zeros.T - less, bits),
            "scales": scales.T.contiguous(),
            "g_idx": torch.arange(columns, dtype=torch.int32) // GROUP,
        }
        return parts, weights

    return make


def awq(rows: int, columns: int, random: torch.Generator) -> tuple[Parts, torch.Tensor]:
    numbers, zeros, scales, weights = drawn(rows, columns, 4, random)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

    def words(matrix: torch.Tensor) -> torch.Tensor:
        return packed(matrix.view(len(matrix), -1, 8)[:, :, order].reshape(len(matrix), -1), 4)

    return {"qweight": words(numbers.T), "qzeros": words(zeros.T), "scales": scales.T.contiguous()}, weights


def compressed(layout: str, **arguments: Any) -> Maker:
    """By the library itself; the weights are those that it gives back."""

    def make(rows: int, columns: int, random: torch.Generator) -> tuple[Parts, torch.Tensor]:
        library = pytest.importorskip("compressed_tensors")
        quantization = pytest.importorskip("compressed_tensors.quantization")
        compressor = library.BaseCompressor.get_value_from_registry(layout)
        scheme = quantization.QuantizationScheme(targets=["Linear"], weights=quantization.QuantizationArgs(**arguments))
        groups = columns // GROUP if arguments["strategy"] == "group" else 1
        most = 400.0 if arguments["type"] == "float" else 2 ** arguments["num_bits"] / 2 - 1
        state = {
            "weight": torch.randn(rows, columns, generator=random).bfloat16(),
            "weight_scale": (torch.rand(rows, groups, generator=random) / most + 3 / most).bfloat16(),
        }
        if not arguments.get("symmetric", True):
            state["weight_zero_point"] = torch.randint(-8, 8, (rows, groups), generator=random).to(torch.int8)
        made = compressor.compress(state, scheme)
        exact = {name: each.double() if name == "weight_scale" else each for name, each in made.items()}
        return dict(made), compressor.decompress(exact, scheme)["weight"].double()

    return make


def groups(layout: str, **weights: Any) -> dict[str, Any]:
    group = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": group, "ignore": ["lm_head"]}


def scheme(layout: str, **weights: Any) -> tuple[dict[str, Any], Maker]:
    return groups(layout, **weights), compressed(layout, **weights)


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
LAYOUTS: dict[str, tuple[dict[str, Any], Maker, str]] = {
    "fp8": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, fp8, "fp8:128"),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP}, gptq(4, 1), "int4:32:zeros:fp16"),
    "gptq, 8 bits": ({"quant_method": "gptq", "bits": 8, "group_size": GROUP}, gptq(8, 1), "int8:32:zeros:fp16"),
    "gptq_v2": (
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": "gptq_v2"},
        gptq(4, 2),
        "int4:32:zeros:fp16",
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
        awq,
        "int4:32:zeros:fp16",
    ),
    "int4 by group": (*scheme("pack-quantized", **INT4, symmetric=True), "int4:32"),
    "int4 with zero points": (*scheme("pack-quantized", **INT4, symmetric=False), "int4:32:zeros"),
    "int8 by row": (*scheme("int-quantized", num_bits=8, type="int", strategy="channel", symmetric=True), "int8"),
    "int4 in bytes": (*scheme("int-quantized", **INT4, symmetric=True), "int4:32"),
    "fp8 by row": (*scheme("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True), "fp8"),
}


def matrices(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Rows and columns of the matrices of a layer."""
    hidden, inner, width = (config[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
    query, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    rows = {"q_proj": (query, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, query)}
    inner_ones = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    return {f"self_attn.{name}": shape for name, shape in rows.items()} | {
        f"mlp.{name}": shape for name, shape in inner_ones.items()
    }


def tensors(
    layout: str, seed: int, family: str = "qwen3", **changes: Any
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors of a checkpoint of `layout`, all weights by their names, in float64, and its config.json.

    changes: of the configuration, as shapes.
    """
    quantization, make, _ = LAYOUTS[layout]
    kind = {"model_type": family, "architectures": [f"{family.title()}ForCausalLM"]}
    config = CONFIG | SIZES | kind | {"quantization_config": quantization} | changes
    random, hidden = torch.Generator().manual_seed(seed), config["hidden_size"]
    stored = {
        "model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden, generator=random).bfloat16(),
        "lm_head.weight": torch.randn(config["vocab_size"], hidden, generator=random).bfloat16(),
        "model.norm.weight": torch.ones(hidden).bfloat16(),
    }
    if config["tie_word_embeddings"]:
        del stored["lm_head.weight"]
    vectors = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if family == "qwen3":
        vectors |= {"self_attn.q_norm": config["head_dim"], "self_attn.k_norm": config["head_dim"]}
    meant: dict[str, torch.Tensor] = {}
    for layer in range(config["num_hidden_layers"]):
        for name, size in vectors.items():
            stored[f"model.layers.{layer}.{name}.weight"] = (torch.rand(size, generator=random) + 0.5).bfloat16()
        for name, (rows, columns) in matrices(config).items():
            if family == "qwen2" and name[-6:] in ("q_proj", "k_proj", "v_proj"):
                bias = torch.randn(rows, generator=random).bfloat16().half()
                stored[f"model.layers.{layer}.{name}.bias"] = bias
            parts, meant[f"model.layers.{layer}.{name}.weight"] = make(rows, columns, random)
            stored |= {f"model.layers.{layer}.{name}.{part}": each for part, each in parts.items()}
    plain = {name: each for name, each in stored.items() if name.endswith((".weight", ".bias")) and name not in meant}
    return stored, {name: each.double() for name, each in plain.items()} | meant, config


def checkpoint(
    folder: Path, layout: str, seed: int, family: str = "qwen3", spare: float = 0, **changes: Any
) -> dict[str, torch.Tensor]:
    """Save a checkpoint of `layout`; returns all weights by their names, in float64.

    spare: value of a bias of o_proj, which GPTQ's tools store for every matrix. changes: of `quantization_config`.
    """
    stored, meant, config = tensors(layout, seed, family)
    if layout.startswith("gptq"):
        stored["model.layers.1.self_attn.o_proj.bias"] = torch.full((128,), spare).half()
    save(folder, stored, **config | {"quantization_config": config["quantization_config"] | changes})
    return meant
