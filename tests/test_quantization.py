"""Quantized checkpoints in the published layouts, as they are and damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest
import torch
from checkpoints import refused, save
from quantized import GROUP, LAYOUTS, SIZES, checkpoint, tensors
from rounded_cache import rounded_cache
from safetensors.torch import load_file

from common.compile.source import build
from common.errors import LabError
from common.model.weights import hf_slots, load
from experiments.engines.transformers_model import causal_lm


@pytest.mark.parametrize(("layout", "family"), [*((layout, "qwen3") for layout in LAYOUTS), ("gptq", "qwen2")])
def test_its_weights_are_read_as_they_are(layout, family, tmp_path: Path, seed):
    meant = checkpoint(tmp_path / "model", layout, seed, family)
    model, places, weights = load(str(tmp_path / "model"), None, None, tmp_path)
    assert (model.format, model.head_format) == (LAYOUTS[layout][2], "bf16")
    assert dict(hf_slots(places)).keys() == meant.keys()
    for name, slot in hf_slots(places):
        assert torch.equal(slot.of(weights.flat).double(), meant[name]), name


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("layout", "family"),
    [("fp8", "qwen3"), ("gptq", "qwen2"), ("awq", "qwen3"), ("awq", "llama"), ("int4 with zero points", "qwen2")],
)
def test_its_ids_are_those_of_transformers(layout, family, tmp_path: Path, cpu_cache, seed):
    from common.devices.ptx.device import PtxDevice

    meant = checkpoint(tmp_path / "model", layout, seed, family)
    model, places, weights = load(str(tmp_path / "model"), None, None, tmp_path)
    theirs = causal_lm(places, weights.flat, torch.float64)
    theirs.load_state_dict(meant)  # what this test made, whatever was read
    ids, cache = [7, 3, 9], rounded_cache()()
    for position in range(26):
        logits = theirs(torch.tensor([[ids[position]]]), past_key_values=cache).logits
        ids += [int(logits[0, -1].argmax())] if position + 1 == len(ids) else []
    device = PtxDevice(cpu_cache, seed=seed)
    session = device.session(device.compile(build([], model)), weights.flat, 8)
    session.reset(ids[:3], position=0, forced=3)
    session.run(26)
    at = places.state["ids"].offset
    assert session.state()[at : at + 27].tolist() == ids


def test_a_bias_that_the_model_lacks_must_be_zero(tmp_path: Path, seed):
    checkpoint(tmp_path / "model", "gptq", seed, spare=0.5)
    refused(tmp_path / "model", "layers.1.self_attn.o_proj.bias is not 0", cache=tmp_path)


def test_a_head_may_be_rounded_and_layers_may_not(tmp_path: Path, seed):
    meant = checkpoint(tmp_path / "model", "awq", seed)
    model, places, weights = load(str(tmp_path / "model"), None, None, tmp_path, formats=(None, "int8:64", "bf16"))
    assert model.formats[1].group == 64
    assert torch.equal(places.weight("down", 1).of(weights.flat).double(), meant["model.layers.1.mlp.down_proj.weight"])
    with pytest.raises(LabError, match="has weights in int4:32:zeros:fp16, not int8; leave format= out"):
        load(str(tmp_path / "model"), None, None, tmp_path, formats=("int8", "bf16", "bf16"))


@pytest.mark.parametrize("config", [3, [], "fp8", {}, {"quant_method": None}])
def test_a_quantization_of_another_kind_is_refused(config, tmp_path: Path):
    save(tmp_path / "model", **SIZES, quantization_config=config)
    refused(tmp_path / "model", "quant", cache=tmp_path / "cache")


def test_a_lost_tensor_and_a_wrong_dtype_are_refused(tmp_path: Path, seed):
    checkpoint(tmp_path / "model", "awq", seed)
    stored, name = load_file(tmp_path / "model" / "model.safetensors"), "model.layers.0.self_attn.v_proj"
    zeros = stored.pop(f"{name}.qzeros")
    save(tmp_path / "model", stored, **SIZES, quantization_config=LAYOUTS["awq"][0])
    refused(tmp_path / "model", f"lacks tensor {name}.qzeros", cache=tmp_path / "cache")
    save(tmp_path / "model", stored | {f"{name}.qzeros": zeros.float()}, **SIZES, quantization_config=LAYOUTS["awq"][0])
    refused(tmp_path / "model", "has dtype F32; give one with I32", cache=tmp_path / "cache")
    save(tmp_path / "model", stored | {f"{name}.qzeros": zeros}, **SIZES)  # a config.json that says nothing
    refused(tmp_path / "model", "lacks tensor model.layers.0.self_attn.q_proj.weight", cache=tmp_path / "cache")


Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], None]  # changes tensors, and a config.json


def edit(folder: Path, change: Change) -> None:
    """Change the tensors and the configuration of a saved checkpoint."""
    stored, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    change(stored, config)
    save(folder, stored, **config)


@pytest.mark.parametrize("order", [("gptq", "gptq_v2"), ("gptq_v2", "gptq")])
def test_the_same_bytes_under_two_configurations_are_two_weights(order, tmp_path: Path, seed):
    """Version 1 stores zero points less one: the second reading of a file, or of its copy, is not that of the first."""
    meant = checkpoint(tmp_path / "first", "gptq", seed)
    name = "model.layers.1.mlp.down_proj.weight"
    read, shas = {}, set()
    for folder, version in zip(("first", "second"), order, strict=True):
        checkpoint(tmp_path / folder, "gptq", seed, checkpoint_format=version)
        _, places, packed = load(str(tmp_path / folder), None, None, tmp_path / "cache")
        read[version] = dict(hf_slots(places))[name].of(packed.flat).double()
        shas.add(packed.sha)
    scales = load_file(tmp_path / "first" / "model.safetensors")[name.replace("weight", "scales")].double()
    assert torch.equal(read["gptq"], meant[name])
    assert torch.equal(read["gptq_v2"], meant[name] + scales.T.repeat_interleave(GROUP, 1))
    assert len(shas) == 2  # so those of records and references differ, too


def fp16_scales(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    for name in [name for name in stored if name.endswith("weight_scale")]:
        stored[name] = (torch.rand(stored[name].shape) / 99 + 1e-4).half()


def cache_scales(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    fp8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
    config["quantization_config"]["kv_cache_scheme"] = fp8
    config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = fp8
    for part in ("self_attn.k_scale", "self_attn.v_scale", "mlp.up_proj.input_scale"):
        stored[f"model.layers.0.{part}"] = torch.ones(1)


def buffers(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    own = {"rotary_emb.inv_freq": torch.rand(16), "masked_bias": torch.tensor(-1e4), "bias": torch.ones(1, 1, 8, 8)}
    stored |= {f"model.layers.1.self_attn.{name}": each for name, each in own.items()}
    stored["model.rotary_emb.inv_freq"] = torch.rand(16)


def said(**changes: Any) -> Change:
    return lambda stored, config: config["quantization_config"].update(changes)


def as_transformers_writes(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    import transformers
    from compressed_tensors.quantization import QuantizationConfig

    found, made = config["quantization_config"], None
    if found["quant_method"] == "compressed-tensors":
        made = QuantizationConfig.model_validate(found).model_dump(mode="json")
    else:
        kinds = {"gptq": "GPTQConfig", "awq": "AwqConfig", "fp8": "FineGrainedFP8Config"}
        made = getattr(transformers, kinds[found["quant_method"]])(**{"sym": False} | found).to_dict()
    config["quantization_config"] = json.loads(json.dumps(made))


@pytest.mark.parametrize(
    ("layout", "change", "form"),
    [
        *((layout, as_transformers_writes, None) for layout in LAYOUTS),
        ("awq", said(version="GEMM"), None),
        ("gptq", said(desc_act=True), None),  # a group at a time: no column is elsewhere
        ("gptq", buffers, None),
        ("int4 by group", fp16_scales, "int4:32:fp16"),
        ("fp8 by row", fp16_scales, "fp8:fp16"),
        ("fp8 by row", cache_scales, None),
        ("int4 by group", said(ignore=["lm_head", "re:.*visual.*"], sparsity_config={"format": "dense"}), None),
    ],
)
def test_what_is_right_is_read(layout, change, form, tmp_path: Path, seed):
    checkpoint(tmp_path / "model", layout, seed)
    edit(tmp_path / "model", change)
    model, places, packed = load(str(tmp_path / "model"), None, None, tmp_path)
    assert model.format == (form or LAYOUTS[layout][2])
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    meant = published.weights(config, load_file(tmp_path / "model" / "model.safetensors"))
    for name, slot in hf_slots(places):
        assert torch.equal(slot.of(packed.flat).double(), meant[name]), name


@pytest.mark.parametrize(("layout", "form"), [("fp8", "fp8:64"), ("awq", "int4:32:zeros:fp16")])
def test_a_last_block_may_be_shorter(layout, form, tmp_path: Path, seed):
    """Rows of 192 and 64 weights: blocks of 128 become groups of 64, each with the scale of its block."""
    shapes = {"hidden_size": 192, "num_attention_heads": 2}
    stored, meant, config = tensors(layout, seed, **shapes)
    save(tmp_path / "model", stored, **config)
    model, places, packed = load(str(tmp_path / "model"), None, None, tmp_path)
    assert model.format == form
    for name, slot in hf_slots(places):
        assert torch.equal(slot.of(packed.flat).double(), meant[name]), name


def scheme_of(**changes: Any) -> Change:
    """A change of the arguments of compressed-tensors' weights."""
    return lambda stored, config: config["quantization_config"]["config_groups"]["group_0"]["weights"].update(changes)


def stored_as(name: str, value: torch.Tensor | None) -> Change:
    """Another tensor of layer 1, and if it is a weight instead of the matrix's own."""

    def change(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        for each in [each for each in stored if name.endswith(".weight") and each.startswith(place[: -len("weight")])]:
            del stored[each]
        stored[place] = value

    place = f"model.layers.1.{name}"
    return change


def damaged(part: str, index: Any, value: float) -> Change:
    """Another number in a tensor of layer 1."""

    def change(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        stored[f"model.layers.1.mlp.up_proj.{part}"][index] = value

    return change


METHODS = ("fp8", "gptq", "awq", "int4 by group")
ALL_ONES = torch.full((4, 32), -1, dtype=torch.int32)
MIDDLE = torch.full((4, 32), 0x77777777, dtype=torch.int32)  # 8, stored less one


@pytest.mark.parametrize(
    ("layout", "change", "words"),
    [
        ("gptq", said(quant_method="squeezellm"), ["quant_method is 'squeezellm'", "fp8, gptq, awq"]),
        ("gptq", said(bits=3), ["bits is 3"]),
        ("gptq", said(bits=8), ["qweight has shape [16, 128]", "makes it [32, 128]"]),
        ("gptq", said(group_size=12), ["group_size is 12"]),
        ("gptq", said(group_size=64), ["has shape [4, ", "makes it [2, "]),
        ("gptq", said(group_size=24), ["has shape [4, ", "makes it [6, "]),
        ("gptq", said(checkpoint_format="marlin"), ["checkpoint_format 'marlin'"]),
        ("awq", said(version="gemv"), ["version 'gemv'"]),
        ("awq", said(zero_point=False), ["zero_point is False"]),
        ("fp8", said(weight_block_size=None), ["weight_block_size is None"]),
        ("fp8", said(weight_block_size=[64, 64]), ["weight_block_size is [64, 64]"]),
        ("fp8", said(fmt="e5m2"), ["fmt is 'e5m2'"]),
        ("int8 by row", said(config_groups={}), ["config_groups is {}"]),
        ("int8 by row", said(config_groups={"a": {"targets": ["Linear"]}}), ["weights is None"]),
        ("int8 by row", said(format="nvfp4-pack-quantized"), ["format 'nvfp4-pack-quantized'"]),
        ("fp8", damaged("weight_scale_inv", (0, 0), float("nan")), ["a scale is nan"]),
        ("fp8", damaged("weight_scale_inv", (0, 0), 0.0), ["a scale is 0.0"]),
        ("fp8", damaged("weight", (1, 2), float("nan")), ["a weight is NaN"]),
        ("gptq", damaged("scales", (0, 5), float("inf")), ["a scale is inf"]),
        ("gptq", damaged("scales", (0, 5), -1.0), ["a scale is -1.0"]),
        ("gptq", damaged("g_idx", 3, 1), ["g_idx is not of groups of 32 columns"]),
        ("gptq", said(sym=True), ["a zero point is", "sym True, checkpoint_format gptq, which stores them less one"]),
        ("gptq_v2", stored_as("mlp.up_proj.qzeros", MIDDLE), ["a zero point is 7", "checkpoint_format gptq_v2"]),
        ("gptq", stored_as("mlp.up_proj.qzeros", ALL_ONES), ["a zero point is 16, beyond 4 bits"]),
        ("int4 by group", stored_as("mlp.up_proj.weight_shape", torch.tensor([256, 64])), ["[256, 64]", "[256, 128]"]),
        ("int8 by row", scheme_of(num_bits=4), ["numbers from -", "num_bits 4"]),
        ("fp8 by row", scheme_of(num_bits=4), ["num_bits is 4"]),
        ("int4 by group", scheme_of(actorder="group"), ["actorder is 'group'"]),
        ("int4 by group", scheme_of(strategy="channel"), ["strategy is channel, and group_size 32"]),
        ("int8 by row", scheme_of(symmetric=False), ["symmetric is False"]),
        ("fp8 by row", scheme_of(dynamic=True), ["dynamic is True"]),
        ("fp8 by row", scheme_of(global_scale=2.0), ["'global_scale': 2.0, which the lab does not know"]),
        ("awq", stored_as("mlp.up_proj.weight", torch.ones(256, 128)), ["layers.1.mlp.up_proj.weight in F32"]),
        ("int8 by row", stored_as("mlp.up_proj.weight", torch.ones(256, 128)), ["one format for all layers; use the"]),
        ("gptq", said(lm_head=True), ["lm_head is True"]),
        ("gptq", said(format="gptq_v2", checkpoint_format="gptq"), ["format 'gptq', format 'gptq_v2', and"]),
        ("awq", said(backend="llm-awq"), ["backend 'llm-awq'"]),
        ("fp8", said(method="gptq"), ["method is 'gptq', and only 'fp8'"]),
        *((layout, said(rotation="hadamard"), ["has 'rotation': 'hadamard', which the lab"]) for layout in METHODS),
    ],
)  # fmt: skip
def test_what_is_damaged_contradicts_itself_or_is_not_known_is_refused(layout, change, words, tmp_path: Path, seed):
    checkpoint(tmp_path / "model", layout, seed)
    edit(tmp_path / "model", change)
    refused(tmp_path / "model", *words, cache=tmp_path / "cache")


def test_a_quantized_head_is_named(tmp_path: Path, seed):
    def change(stored: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        del stored["lm_head.weight"]
        stored["lm_head.qweight"] = torch.zeros(128, 12, dtype=torch.int32)

    checkpoint(tmp_path / "model", "awq", seed)
    edit(tmp_path / "model", change)
    refused(tmp_path / "model", "lacks tensor lm_head.weight and has lm_head.qweight", cache=tmp_path / "cache")
