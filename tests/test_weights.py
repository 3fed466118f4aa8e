"""Packed weights against tensors saved by transformers, bit for bit; the cache; synthetic weights in a real model."""

import hashlib
import os
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import save, tensors
from test_synthetic import TINY, same

from common.config.resolve import model_named
from common.errors import LabError
from common.model.hf_config import read_model
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import hf_slots, load

SHAPES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
CASES = {
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False},
    "sharded": {"tie_word_embeddings": False, "max_shard_size": "40KB"},
    "sharded tied": {"tie_word_embeddings": True, "max_shard_size": "40KB"},
    "fp16": {"dtype": torch.float16},
    "fp32": {"dtype": torch.float32, "tie_word_embeddings": True},
    "head_dim is hidden / heads": {"head_dim": 16},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 5432.1}, "rms_norm_eps": 1e-5},
    "many blocks": {"vocab_size": 1201, "intermediate_size": 800},
    "one head, one layer": {"num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1},
    "Llama": {"family": "Llama"},
    "Qwen2, sharded": {"family": "Qwen2", "max_shard_size": "40KB"},
}


@pytest.fixture(scope="module")
def transformers() -> ModuleType:
    return pytest.importorskip("transformers")


def to_bf16(values: torch.Tensor) -> torch.Tensor:
    """Round to nearest even by hand: bf16 is the upper half of fp32's bits."""
    bits = values.detach().float().numpy().view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return torch.from_numpy(rounded.astype(np.uint16).view(np.int16)).view(torch.bfloat16)


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_packed_bit_for_bit(
    transformers: ModuleType, tmp_path: Path, cache: Path, seed: int, case: str
) -> None:
    torch.manual_seed(seed)
    change: dict[str, Any] = dict(CASES[case])
    dtype, shards = change.pop("dtype", torch.bfloat16), change.pop("max_shard_size", "5GB")
    family = change.pop("family", "Qwen3")
    config = getattr(transformers, f"{family}Config")(**SHAPES | change)
    module = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 10 ** (torch.rand(parameter.shape) * 6 - 5))
    module.to(dtype).save_pretrained(tmp_path / "saved", max_shard_size=shards)
    assert (len(list((tmp_path / "saved").glob("*.safetensors"))) > 1) == ("sharded" in case)

    model, layout, packed = load(str(tmp_path / "saved"), None, None, cache)
    state, config = module.state_dict(), module.config
    assert model == Model(
        "saved", config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads,
        config.num_key_value_heads, config.head_dim, config.vocab_size, config.max_position_embeddings,
        config.rope_parameters["rope_theta"], config.rms_norm_eps, config.tie_word_embeddings,
        qk_norm=family == "Qwen3", qkv_bias=family == "Qwen2",
    )  # fmt: skip
    want = {("embed", None): "model.embed_tokens", ("final_norm", None): "model.norm", ("lm_head", None): "lm_head"}
    expected = {place: state[f"{name}.weight"] for place, name in want.items()}
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}"
        attention = {name: state[f"{prefix}.self_attn.{name}.weight"] for name in
                     ("q_proj", "k_proj", "v_proj", "o_proj")}  # fmt: skip
        if family == "Qwen3":
            norms = {name: state[f"{prefix}.self_attn.{name}.weight"] for name in ("q_norm", "k_norm")}
            expected |= {(name, layer): norm for name, norm in norms.items()}
        if family == "Qwen2":
            biases = [state[f"{prefix}.self_attn.{name}_proj.bias"] for name in "qkv"]
            expected["qkv_bias", layer] = torch.cat(biases)
        expected |= {
            ("input_norm", layer): state[f"{prefix}.input_layernorm.weight"],
            ("qkv", layer): torch.cat([attention["q_proj"], attention["k_proj"], attention["v_proj"]]),
            ("o", layer): attention["o_proj"],
            ("post_norm", layer): state[f"{prefix}.post_attention_layernorm.weight"],
        } | {(name, layer): state[f"{prefix}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")}
    assert packed.flat.dtype == torch.bfloat16
    assert packed.flat.shape == (layout.weights_size,)
    untouched = torch.ones(layout.weights_size, dtype=torch.bool)
    for (name, layer), tensor in expected.items():
        slot = layout.weight(name, layer)
        part = slice(slot.offset, slot.offset + slot.size)
        assert same(packed.flat[part].view(slot.shape), to_bf16(tensor)), (name, layer)
        untouched[part] = False
    assert not packed.flat[untouched].any()


@pytest.mark.parametrize(
    ("name", "family", "parameters"),  # as the model cards count them
    [
        ("llama_1b", "Llama", 1_235_814_400),
        ("llama_3b", "Llama", 3_212_749_824),
        ("qwen2_0_5b", "Qwen2", 494_032_768),
        ("qwen2_1_5b", "Qwen2", 1_543_714_304),
        ("qwen3_0_6b", "Qwen3", 596_049_920),
        ("qwen3_4b", "Qwen3", 4_022_468_096),
        ("qwen3_8b", "Qwen3", 8_190_735_360),
    ],
)
def test_published_sizes(transformers: ModuleType, tmp_path: Path, name: str, family: str, parameters: int) -> None:
    """A model of conf/model is that of its published config.json, and has transformers' tensors, side by side."""
    model = model_named(name)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": model.rope_theta}
    if family == "Llama":
        rope |= {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope |= {"original_max_position_embeddings": 8192}
    config = getattr(transformers, f"{family}Config")(
        hidden_size=model.hidden, intermediate_size=model.intermediate, num_hidden_layers=model.layers,
        num_attention_heads=model.heads, num_key_value_heads=model.kv_heads, vocab_size=model.vocab,
        max_position_embeddings=131072, tie_word_embeddings=model.tied, rope_parameters=rope,
        rms_norm_eps=model.rms_eps,
    )  # fmt: skip
    config.architectures = [f"{family}ForCausalLM"]
    config.save_pretrained(tmp_path)
    assert read_model(tmp_path / "config.json", name, None) == model
    with torch.device("meta"):
        state = getattr(transformers, f"{family}ForCausalLM")(config).state_dict()
    if model.tied:
        del state["lm_head.weight"]
    slots = dict(hf_slots(Layout(model)))
    assert {name: slot.shape for name, slot in slots.items()} == {name: tuple(t.shape) for name, t in state.items()}
    assert sum(slot.size for slot in slots.values()) == parameters
    end = 0
    for slot in sorted(slots.values(), key=lambda slot: slot.offset):
        assert slot.offset >= end
        end = slot.offset + slot.size
    assert end <= Layout(model).weights_size


def test_head_of_a_tied_checkpoint(tmp_path: Path, cache: Path) -> None:
    """Published tied checkpoints contain the head as well: a copy is accepted, another matrix is refused."""
    weights = tensors()
    folder = tmp_path / "ckpt"
    save(folder, weights, tie_word_embeddings=True)
    with pytest.raises(LabError, match=r"ties the head.*lm_head\.weight differs"):
        load(str(folder), None, None, cache)
    assert not list(cache.glob("*.bf16*"))
    save(folder, weights | {"lm_head.weight": weights["model.embed_tokens.weight"].float()}, tie_word_embeddings=True)
    _, layout, packed = load(str(folder), None, None, cache)
    slot = layout.weight("lm_head")
    assert same(packed.flat[slot.offset :][: slot.size].view(slot.shape), weights["model.embed_tokens.weight"])
    del weights["lm_head.weight"]
    save(folder, weights, tie_word_embeddings=True)
    assert same(load(str(folder), None, None, cache)[2].flat, packed.flat)
    save(folder, weights, tie_word_embeddings=False)
    with pytest.raises(LabError, match=r"lacks tensor lm_head\.weight.*tie_word_embeddings"):
        load(str(folder), None, None, cache)


def test_packed_weights_are_cached_once(tmp_path: Path, cache: Path) -> None:
    file = save(tmp_path / "ckpt")
    os.utime(file, (1, 1))
    _, _, packed = load(str(file.parent), None, None, cache)
    assert packed.sha == hashlib.sha256(file.read_bytes()).hexdigest()
    (kept,) = cache.glob("*.bf16")
    before = kept.stat()

    # Another cache size, or the path of the file instead of its folder, gives the same weights: nothing is written.
    for spec, positions in ((file.parent, 16), (file, None)):
        assert load(str(spec), None, positions, cache)[2].sha == packed.sha
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    # A write to the tensor stays in this process.
    content = kept.read_bytes()
    load(str(file), None, None, cache)[2].flat.zero_()
    assert kept.read_bytes() == content

    # Other heads, same total of q, k and v rows: a cached file must not hide that the shapes no longer fit.
    save(file.parent, num_attention_heads=2, num_key_value_heads=1, head_dim=32)
    with pytest.raises(LabError, match="q_norm"):
        load(str(file), None, None, cache)


def test_changed_file_is_noticed(tmp_path: Path, cache: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same path, size and modification time, one bit different; the hash of the old content has been remembered."""
    file = save(tmp_path / "ckpt")
    os.utime(file, (1, 1))
    first = load(str(file), None, None, cache)[2]
    assert list(cache.glob("*.sha256"))
    monkeypatch.setattr("common.cache.weight_files.hashlib.file_digest", lambda *_: pytest.fail("hashed again"))
    assert load(str(file), None, None, cache)[2].sha == first.sha
    monkeypatch.undo()
    content = bytearray(file.read_bytes())
    content[random.Random(seed).randrange(len(content) - 1000, len(content)) & ~1] ^= 1  # a low mantissa byte
    file.write_bytes(content)
    os.utime(file, (1, 1))
    second = load(str(file), None, None, cache)[2]
    assert second.sha == hashlib.sha256(content).hexdigest() != first.sha
    assert int((second.flat != first.flat).sum()) == 1
    for memory in cache.glob("*.sha256"):
        memory.write_text("[]")  # neither a hash nor a checksum
    assert load(str(file), None, None, cache)[2].sha == second.sha


def test_an_unwritable_cache_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LabError, match=r"cache folder .* cannot be used.*choose another"):
            load("synthetic", TINY, None, cache)[2].pack()


def test_memory_of_a_kernel():
    """Qwen3-0.6B by hand: 596,049,920 weights and 28 * 2 * 8 * 2048 * 128 cache entries of 2 B, and little else."""
    model = Model("qwen3_0_6b", 1024, 3072, 28, 16, 8, 128, 151936, 2048, 1e6, 1e-6, True)
    known = 2 * 596_049_920 + 2 * 28 * 2 * 8 * 2048 * 128
    assert 0 < Layout(model).bytes - known < 20e6
