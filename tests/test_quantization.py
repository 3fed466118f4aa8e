"""Quantized checkpoints in the published layouts, made word by word or by their own library, and hostile ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import CONFIG, refused, save
from rounded_cache import rounded_cache

from common.compile.source import build
from common.errors import LabError
from common.model.weights import hf_slots, load
from experiments.engines.transformers_model import causal_lm

SIZES = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "head_dim": 32,
    "vocab_size": 96,
}
MATRICES = {
    "self_attn.q_proj": (128, 128),
    "self_attn.k_proj": (64, 128),
    "self_attn.v_proj": (64, 128),
    "self_attn.o_proj": (128, 128),
    "mlp.gate_proj": (256, 128),
    "mlp.up_proj": (256, 128),
    "mlp.down_proj": (128, 256),
}
VECTORS = {
    "input_layernorm": 128,
    "self_attn.q_norm": 32,
    "self_attn.k_norm": 32,
    "post_attention_layernorm": 128,
}
GROUP = 32

Parts = dict[str, torch.Tensor]  # tensors of a matrix by the last part of their names
Maker = Callable[[int, int, torch.Generator], tuple[Parts, torch.Tensor]]  # rows, columns -> parts, weights in float64


def packed(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 words of unsigned numbers [rows, columns], the first in the lowest bits."""
    each = 32 // bits
    words = numbers.long().view(len(numbers), -1, each) << torch.arange(0, 32, bits)
    return words.sum(2).to(torch.int64).to(torch.int32)


def fp8(rows: int, columns: int, random: torch.Generator) -> tuple[Parts, torch.Tensor]:
    weight = (torch.randn(rows, columns, generator=random) * 60).clamp(-448, 448).to(torch.float8_e4m3fn)
    weight[0, :5] = torch.tensor([0.0, 2.0**-9, -(2.0**-9), 7 * 2.0**-9, 448]).to(torch.float8_e4m3fn)
    scale = (torch.rand(-(-rows // 128), columns // 128, generator=random) / 400 + 1e-3).bfloat16()
    full = torch.stack([torch.stack([scale[r // 128, c // 128] for c in range(columns)]) for r in range(rows)])
    return {"weight": weight, "weight_scale_inv": scale}, weight.double() * full.double()


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
    "fp8 by row": (*scheme("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True), "fp8"),
}


def checkpoint(
    folder: Path, layout: str, seed: int, family: str = "qwen3", spare: float = 0, **changes: Any
) -> dict[str, torch.Tensor]:
    """Save a checkpoint of `layout`; returns all weights by their names, in float64.

    spare: value of a bias of o_proj, which GPTQ's tools store for every matrix. changes: of the configuration.
    """
    config, make, _ = LAYOUTS[layout]
    random = torch.Generator().manual_seed(seed)
    stored = {"model.embed_tokens.weight": torch.randn(96, 128, generator=random).bfloat16()}
    stored["lm_head.weight"] = torch.randn(96, 128, generator=random).bfloat16()
    stored["model.norm.weight"] = torch.ones(128).bfloat16()
    meant: dict[str, torch.Tensor] = {}
    for layer in range(CONFIG["num_hidden_layers"]):
        for name, size in VECTORS.items():
            if family == "qwen3" or name.endswith("layernorm"):
                stored[f"model.layers.{layer}.{name}.weight"] = (torch.rand(size, generator=random) + 0.5).bfloat16()
        for name in ("q_proj", "k_proj", "v_proj") if family == "qwen2" else ():
            bias = torch.randn(MATRICES[f"self_attn.{name}"][0], generator=random).bfloat16().half()
            stored[f"model.layers.{layer}.self_attn.{name}.bias"] = bias
        for name, (rows, columns) in MATRICES.items():
            parts, meant[f"model.layers.{layer}.{name}.weight"] = make(rows, columns, random)
            stored |= {f"model.layers.{layer}.{name}.{part}": each for part, each in parts.items()}
    plain = {name: each for name, each in stored.items() if name.endswith((".weight", ".bias")) and name not in meant}
    if layout.startswith("gptq"):
        stored["model.layers.1.self_attn.o_proj.bias"] = torch.full((128,), spare).half()
    kind = {"model_type": family, "architectures": [f"{family.title()}ForCausalLM"]}
    save(folder, stored, **SIZES, **kind, quantization_config=config | changes)
    return {name: each.double() for name, each in plain.items()} | meant


@pytest.mark.parametrize("family", ["qwen3", "qwen2"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_weights_are_read_as_they_are(layout, family, tmp_path: Path, seed):
    meant = checkpoint(tmp_path / "model", layout, seed, family)
    model, places, weights = load(str(tmp_path / "model"), None, None, tmp_path)
    assert (model.format, model.head_format) == (LAYOUTS[layout][2], "bf16")
    assert dict(hf_slots(places)).keys() == meant.keys()
    for name, slot in hf_slots(places):
        assert torch.equal(slot.of(weights.flat).double(), meant[name]), name


@pytest.mark.host
@pytest.mark.parametrize(
    ("layout", "family"),
    [("fp8", "qwen3"), ("gptq", "qwen2"), ("awq", "qwen3"), ("awq", "llama"), ("int4 with zero points", "qwen2")],
)
def test_its_ids_are_those_of_transformers(layout, family, tmp_path: Path, host_cache, seed):
    from common.devices.host.device import HostDevice

    meant = checkpoint(tmp_path / "model", layout, seed, family)
    model, places, weights = load(str(tmp_path / "model"), None, None, tmp_path)
    theirs = causal_lm(model, places, weights.flat, torch.float64)
    theirs.load_state_dict(meant)  # what this test made, whatever was read
    ids, cache = [7, 3, 9], rounded_cache()()
    for position in range(26):
        logits = theirs(torch.tensor([[ids[position]]]), past_key_values=cache).logits
        ids += [int(logits[0, -1].argmax())] if position + 1 == len(ids) else []
    device = HostDevice(host_cache, seed=seed)
    session = device.session(device.compile(build([], model)), weights.flat, 8)
    try:
        session.reset(ids[:3], position=0, forced=3)
        session.run(26)
        at = places.state["ids"].offset
        assert session.state()[at : at + 27].tolist() == ids
    finally:
        session.close()


def test_a_bias_that_the_model_lacks_must_be_zero(tmp_path: Path, seed):
    checkpoint(tmp_path / "model", "gptq", seed, spare=0.5)
    refused(tmp_path / "model", "layers.1.self_attn.o_proj.bias is not 0", cache=tmp_path)


def test_a_head_may_be_rounded_and_layers_may_not(tmp_path: Path, seed):
    meant = checkpoint(tmp_path / "model", "awq", seed)
    model, places, weights = load(str(tmp_path / "model"), None, None, tmp_path, formats=(None, "int8:64", "bf16"))
    assert model.formats[1].group == 64
    assert torch.equal(places.weight("down", 1).of(weights.flat).double(), meant["model.layers.1.mlp.down_proj.weight"])
    for form in ("int8", "int4:32:zeros:fp16:gptq"):
        with pytest.raises(LabError, match=f"has weights in int4:32:zeros:fp16, not {form}; leave format= out"):
            load(str(tmp_path / "model"), None, None, tmp_path, formats=(form, "bf16", "bf16"))


@pytest.mark.parametrize(
    ("layout", "changes", "words"),
    [
        ("gptq", {"quant_method": "squeezellm"}, ["quant_method is 'squeezellm'", "fp8, gptq, awq"]),
        ("gptq", {"bits": 3}, ["bits is 3"]),
        ("gptq", {"bits": 8}, ["qweight has shape [16, 128]", "makes it [32, 128]"]),
        ("gptq", {"group_size": 12}, ["group_size is 12"]),
        ("gptq", {"group_size": 64}, ["has shape [4, ", "makes it [2, "]),
        ("gptq", {"group_size": 24}, ["has shape [4, ", "makes it [6, "]),
        ("gptq", {"checkpoint_format": "marlin"}, ["checkpoint_format is 'marlin'"]),
        ("awq", {"version": "gemv"}, ["version 'gemv'"]),
        ("awq", {"zero_point": False}, ["zero_point is False"]),
        ("fp8", {"weight_block_size": None}, ["weight_block_size is None"]),
        ("fp8", {"weight_block_size": [64, 64]}, ["weight_block_size is [64, 64]"]),
        ("fp8", {"fmt": "e5m2"}, ["fmt is 'e5m2'"]),
        ("int8 by row", {"config_groups": {}}, ["config_groups is {}"]),
        ("int8 by row", {"config_groups": {"a": {"targets": ["Linear"]}}}, ["weights is None"]),
        ("int8 by row", {"format": "nvfp4-pack-quantized"}, ["format 'nvfp4-pack-quantized'"]),
    ],
)
def test_what_is_not_supported_is_named(layout, changes, words, tmp_path: Path, seed):
    checkpoint(tmp_path / "model", layout, seed, **changes)
    refused(tmp_path / "model", *words, cache=tmp_path / "cache")


@pytest.mark.parametrize("config", [3, [], "fp8", {}, {"quant_method": None}])
def test_a_quantization_of_another_kind_is_refused(config, tmp_path: Path):
    save(tmp_path / "model", **SIZES, quantization_config=config)
    refused(tmp_path / "model", "quant", cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("layout", "part", "index", "value", "words"),
    [
        ("fp8", "weight_scale_inv", (0, 0), float("nan"), ["a scale is nan"]),
        ("fp8", "weight_scale_inv", (0, 0), 0.0, ["a scale is 0.0"]),
        ("fp8", "weight", (1, 2), float("nan"), ["a weight is NaN"]),
        ("gptq", "scales", (0, 5), float("inf"), ["a scale is inf"]),
        ("gptq", "scales", (0, 5), -1.0, ["a scale is -1.0"]),
        ("gptq", "g_idx", 3, 1, ["g_idx is not of groups of 32 columns"]),
    ],
)
def test_damaged_numbers_are_refused(layout, part, index, value, words, tmp_path: Path, seed):
    from safetensors.torch import load_file

    checkpoint(tmp_path / "model", layout, seed)
    file = tmp_path / "model" / "model.safetensors"
    stored, name = load_file(file), f"model.layers.1.mlp.up_proj.{part}"
    stored[name][index] = value
    save(tmp_path / "model", stored, **SIZES, quantization_config=LAYOUTS[layout][0])
    refused(tmp_path / "model", *words, cache=tmp_path / "cache")


def test_a_lost_tensor_and_a_wrong_dtype_are_refused(tmp_path: Path, seed):
    from safetensors.torch import load_file

    checkpoint(tmp_path / "model", "awq", seed)
    stored, name = load_file(tmp_path / "model" / "model.safetensors"), "model.layers.0.self_attn.v_proj"
    zeros = stored.pop(f"{name}.qzeros")
    save(tmp_path / "model", stored, **SIZES, quantization_config=LAYOUTS["awq"][0])
    refused(tmp_path / "model", f"lacks tensor {name}.qzeros", cache=tmp_path / "cache")
    save(tmp_path / "model", stored | {f"{name}.qzeros": zeros.float()}, **SIZES, quantization_config=LAYOUTS["awq"][0])
    refused(tmp_path / "model", "has dtype F32; give one with I32", cache=tmp_path / "cache")
    save(tmp_path / "model", stored | {f"{name}.qzeros": zeros}, **SIZES)  # a config.json that says nothing
    refused(tmp_path / "model", "lacks tensor model.layers.0.self_attn.q_proj.weight", cache=tmp_path / "cache")
