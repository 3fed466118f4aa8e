"""Reading of a checkpoint by the published libraries, in float64: transformers, compressed-tensors, bits by hand."""

from typing import Any

import torch
from quantized import matrices

Tensors = dict[str, torch.Tensor]


def unpacked(words: torch.Tensor, bits: int, order: tuple[int, ...] = ()) -> torch.Tensor:
    """Numbers [rows, columns * 32 / bits] of words [rows, columns], the lowest bits first. order: of their columns."""
    each = 32 // bits
    numbers = torch.stack([words.long() >> bits * (order or range(each))[i] & 2**bits - 1 for i in range(each)], 2)
    return numbers.reshape(len(words), -1)


def _gptq(config: dict[str, Any], parts: Tensors, shape: tuple[int, int]) -> torch.Tensor:
    from transformers import GPTQConfig

    said = GPTQConfig.from_dict(config)
    assert said.format in ("gptq", "gptq_v2")
    number, zero = (
        unpacked(parts["qweight"].T, said.bits),
        unpacked(parts["qzeros"], said.bits) + (said.format == "gptq"),
    )
    group = parts["g_idx"].long()
    return ((number.T - zero[group]).double() * parts["scales"].double()[group]).T


def _awq(config: dict[str, Any], parts: Tensors, shape: tuple[int, int]) -> torch.Tensor:
    from transformers import AwqConfig

    said, order = AwqConfig.from_dict(config), (0, 4, 1, 5, 2, 6, 3, 7)
    assert (said.format, said.bits) == ("gemm", 4)
    number, zero = (unpacked(parts[name], 4, order) for name in ("qweight", "qzeros"))
    group = torch.arange(shape[1]) // (said.group_size if said.group_size > 0 else shape[1])
    return ((number - zero[group]).double() * parts["scales"].double()[group]).T


def _fp8(config: dict[str, Any], parts: Tensors, shape: tuple[int, int]) -> torch.Tensor:
    from transformers import FineGrainedFP8Config

    rows, columns = FineGrainedFP8Config(**config).weight_block_size
    scale = parts["weight_scale_inv"].double().repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    assert parts["weight"].dtype == torch.float8_e4m3fn
    return parts["weight"].double() * scale[: shape[0], : shape[1]]


def _compressed(config: dict[str, Any], parts: Tensors, shape: tuple[int, int]) -> torch.Tensor:
    from compressed_tensors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    (scheme,) = QuantizationConfig.model_validate(config).config_groups.values()
    exact = {name: each.double() if name == "weight_scale" else each for name, each in parts.items()}
    compressor = BaseCompressor.get_value_from_registry(scheme.format or config["format"])
    return compressor.decompress(exact, scheme)["weight"].double()


METHODS = {"gptq": _gptq, "awq": _awq, "fp8": _fp8, "compressed-tensors": _compressed}


def weights(config: dict[str, Any], stored: Tensors) -> Tensors:
    """Weights by their names, float64. Raises for what a library refuses, or cannot read."""
    found = dict(stored)
    quantization = config.get("quantization_config")
    for layer in range(config["num_hidden_layers"]) if quantization else ():
        for name, shape in matrices(config).items():
            prefix = f"model.layers.{layer}.{name}."
            parts = {each.removeprefix(prefix): found.pop(each) for each in [*found] if each.startswith(prefix)}
            bias = parts.pop("bias", None)
            weight = METHODS[quantization["quant_method"]](quantization, parts, shape)
            assert weight.shape == shape
            found[f"{prefix}weight"] = weight
            if bias is not None:
                found[f"{prefix}bias"] = bias
    return {name: each if each.dtype == torch.float64 else each.bfloat16().double() for name, each in found.items()}


def logits(config: dict[str, Any], meant: Tensors, ids: list[int]) -> torch.Tensor:
    """[ids, vocabulary], by the class of transformers that config.json names, in float64."""
    from transformers import AutoConfig, AutoModelForCausalLM

    said = AutoConfig.for_model(**{key: each for key, each in config.items() if key != "quantization_config"})
    module = AutoModelForCausalLM.from_config(said, dtype=torch.float64)
    missing, _ = module.load_state_dict(meant, strict=False)
    assert set(missing) <= ({"lm_head.weight"} if config["tie_word_embeddings"] else set())
    module.tie_weights()
    module.model.rotary_emb = type(module.model.rotary_emb)(config=said)  # made in float64, it has other frequencies
    return module.eval()(torch.tensor([ids])).logits[0].detach()
