"""Checkpoints with values changed, dtypes swapped and layouts mixed: as published libraries read them, or one line.

Each is a function of its number. Keys that are not known are those of test_known_keys.py and test_quantization.py.
"""

import random
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import published
import pytest
import torch
from checkpoints import save
from quantized import LAYOUTS, Tensors, tensors
from sampled import sampled

from common.errors import LabError
from common.model.weights import hf_slots, load
from common.validate.reference import Reference

SHAPES = (
    {},
    {"hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64},
    {"tie_word_embeddings": True, "hidden_size": 192, "num_attention_heads": 2},
)
VALUES = (None, True, False, 0, 1, 2, 3, 4, 8, 16, 32, 64, 128, -1, "", "gptq", "gptq_v2", "gemm", "GEMM", "gemv",
          "int", "float", "group", "channel", "tensor", "block", "weight", "static", "dynamic", "pack-quantized",
          "int-quantized", "naive-quantized", "float-quantized", "e5m2", [], {}, ["lm_head"],
          ["re:.*q_proj"])  # fmt: skip
RIGHT, WRONG, EITHER = "taken", "refused", "either"


@dataclass
class Mixed:
    """config: its config.json; stored: its tensors; must: it must be taken, or refused, or either; why: changes."""

    config: dict[str, Any]
    stored: Tensors
    must: str
    why: list[str]

    @property
    def quantization(self) -> dict[str, Any]:
        return self.config.get("quantization_config") or {}

    def part(self, rng: random.Random, ends: str) -> str:
        """The name of a tensor."""
        return rng.choice(sorted(name for name in self.stored if name.endswith(ends)) or sorted(self.stored))


def mixed(number: int) -> Mixed:
    """The checkpoint of that number, with up to three changes."""
    rng = random.Random(f"mixed checkpoint {number}")
    layout, family = rng.choice([*LAYOUTS, "bf16"]), rng.choice(["qwen3", "qwen2", "llama", "mistral"])
    shape = rng.choice(SHAPES)
    if layout == "bf16":
        _, meant, config = tensors("awq", number, family, **shape)
        stored = {name: each.bfloat16() for name, each in meant.items()}
        del config["quantization_config"]
    else:
        stored, _, config = tensors(layout, number, family, **shape)
    config = deepcopy(config) | {"num_hidden_layers": config["num_hidden_layers"]}
    if family != "qwen3" and rng.random() < 0.2:
        config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": config["rope_theta"], "factor": 8.0,
                                     "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_max_position_embeddings": 16}  # fmt: skip
    case = Mixed(config, stored, RIGHT, [f"{layout} {family} {shape}"])
    for change in rng.sample(CHANGES, k=rng.choice([0, 1, 1, 1, 2, 2, 3])):
        must = change(rng, case)
        case.must = WRONG if WRONG in (must, case.must) else EITHER if EITHER in (must, case.must) else RIGHT
    return case


def _number(rng: random.Random, case: Mixed) -> str:
    """Another number of config.json: only a shape can contradict the tensors."""
    key = rng.choice(["rope_theta", "rms_norm_eps", "max_position_embeddings", "vocab_size", "num_attention_heads"])
    case.config.pop("rope_parameters", None)
    case.config[key] = case.config[key] * 2
    case.why.append(f"{key} doubled")
    return WRONG if key in ("vocab_size", "num_attention_heads") else RIGHT


def _tie(rng: random.Random, case: Mixed) -> str:
    case.config["tie_word_embeddings"] = not case.config["tie_word_embeddings"]
    case.why.append("tie_word_embeddings turned")
    return WRONG


def _value(rng: random.Random, case: Mixed) -> str:
    """Another value, or none, of a key of quantization_config or below it."""
    at = case.config["quantization_config"] = deepcopy(case.quantization)
    path = []
    while at:
        key = rng.choice(sorted(at))
        path.append(key)
        if not isinstance(at[key], dict) or rng.random() < 0.1:
            break
        at = at[key]
    if not path:
        case.config.pop("quantization_config")
        return RIGHT
    value = rng.choice([*VALUES, "left out"])
    if value == "left out":
        del at[path[-1]]
    else:
        at[path[-1]] = value
    case.why.append(f"quantization {'.'.join(path)}={value}")
    return EITHER


def _key(rng: random.Random, case: Mixed) -> str:
    """A key of another method or of the same, with any value."""
    if not case.quantization:
        return RIGHT
    key = rng.choice(["sym", "desc_act", "checkpoint_format", "format", "version", "zero_point", "bits", "group_size",
                      "num_bits", "actorder", "symmetric", "kv_cache_scheme", "ignore", "modules_to_not_convert",
                      "weight_block_size", "lm_head", "quant_method"])  # fmt: skip
    value = rng.choice(VALUES)
    case.config["quantization_config"] = case.quantization | {key: value}
    case.why.append(f"quantization {key}={value}")
    return EITHER


def _dtype(rng: random.Random, case: Mixed) -> str:
    ends = rng.choice(["weight", "scales", "weight_scale", "weight_scale_inv", "qzeros", "bias"])
    kind = rng.choice([torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int32, torch.int64])
    every = rng.random() < 0.5
    one = case.part(rng, ends)
    for name in [name for name in case.stored if name.endswith(ends) and every] or [one]:
        case.stored[name] = case.stored[name].to(kind)
    case.why.append(f"{'all ' + ends if every else one} in {kind}")
    return EITHER


def _buffers(rng: random.Random, case: Mixed) -> str:
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    kinds = {"rotary_emb.inv_freq": torch.rand(16), "masked_bias": torch.tensor(-1e9), "bias": mask}
    name, value = rng.choice([*kinds.items()])
    for layer in range(2):
        case.stored[f"model.layers.{layer}.self_attn.{name}"] = value.clone()
    case.why.append(f"buffers {name}")
    return RIGHT


def _spare(rng: random.Random, case: Mixed) -> str:
    name = rng.choice(["model.layers.0.self_attn.k_scale", "model.layers.1.mlp.up_proj.input_scale", "model.extra",
                       "model.layers.0.mlp.up_proj.weight_global_scale",
                       "model.layers.1.self_attn.o_proj.bias"])  # fmt: skip
    case.stored[name] = torch.rand(1) + 0.5
    case.why.append(f"tensor {name}")
    return EITHER if "k_scale" in name or "input_scale" in name else WRONG


def _lost(rng: random.Random, case: Mixed) -> str:
    name = rng.choice(sorted(case.stored))
    del case.stored[name]
    case.why.append(f"without {name}")
    return WRONG


def _plain(rng: random.Random, case: Mixed) -> str:
    """One matrix in bf16."""
    if not case.quantization:
        return RIGHT
    prefix = f"model.layers.{rng.randrange(2)}.mlp.down_proj."
    for name in [name for name in case.stored if name.startswith(prefix)]:
        del case.stored[name]
    case.stored[f"{prefix}weight"] = torch.ones(case.config["hidden_size"], case.config["intermediate_size"]).bfloat16()
    case.why.append(f"{prefix}weight in bf16")
    return WRONG


def _data(rng: random.Random, case: Mixed) -> str:
    """Other bytes in a tensor of integers."""
    names = sorted(name for name, each in case.stored.items() if each.dtype in (torch.int32, torch.int8))
    if not names:
        return RIGHT
    name = rng.choice(names)
    random_one = torch.Generator().manual_seed(rng.randrange(2**31))
    bytes_of = case.stored[name].contiguous().view(torch.uint8)
    case.stored[name] = torch.randint(256, bytes_of.shape, generator=random_one).byte().view(case.stored[name].dtype)
    case.why.append(f"other bytes in {name}")
    return EITHER


CHANGES = (_number, _tie, _value, _value, _value, _key, _key, _dtype, _dtype, _buffers, _spare, _lost, _plain, _data)
NUMBERS = range(400)  # LAB_SAMPLE=all: all of them, some minutes


@pytest.mark.parametrize("number", sampled(NUMBERS, 20))
def test_it_is_read_as_published_libraries_do_or_refused_in_one_line(number: int, tmp_path: Path) -> None:
    case = mixed(number)
    save(tmp_path / "model", {name: each.contiguous() for name, each in case.stored.items()}, **case.config)
    refusal = None
    try:
        _, layout, packed = load(str(tmp_path / "model"), None, None, tmp_path)
    except LabError as error:
        refusal = error
    if refusal:
        assert "\n" not in str(refusal)
        assert refusal.remedy
        assert case.must != RIGHT, (case.why, str(refusal))
        print("refused", case.why, refusal)
        return
    assert case.must != WRONG, case.why
    meant = published.weights(case.config, case.stored)
    for name, slot in hf_slots(layout):
        assert torch.equal(slot.of(packed.flat).double(), meant[name]), (case.why, name)
    ids = [number % 90, 3, 9, 41, 7]
    theirs, cache = published.logits(case.config, meant, ids), torch.full(layout.cache.shape, torch.nan).double()
    reference = Reference(layout, packed.flat)
    for position, token in enumerate(ids):
        taps = reference.step(token, position, cache)  # a cache of float64, as theirs, rounds no entry
        cache[:, :, :, position] = taps.stored
        assert (taps["lm_head", None] - theirs[position]).abs().max() < 1e-4 * theirs.abs().max(), case.why
    print("taken", case.why)
