"""config.json: keys that make the model, and keys refused by name."""

import json
from pathlib import Path

import pytest
from checkpoints import CONFIG, MODEL, refused, save

from common.errors import LabError
from common.model.hf_config import read_model
from common.model.weights import load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "ckpt")
    return tmp_path / "ckpt"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_config_becomes_the_model(folder: Path) -> None:
    assert read_model(folder / "config.json", "hand", None) == MODEL
    assert read_model(folder / "config.json", "hand", 40).positions == 40


def test_head_dim_left_out_is_what_transformers_takes(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({key: value for key, value in CONFIG.items() if key != "head_dim"}))
    config = pytest.importorskip("transformers").Qwen3Config.from_pretrained(folder)
    assert read_model(folder / "config.json", "hand", None).head_dim == config.head_dim


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"max_position_embeddings": 40960}, "positions", 2048),
        ({"rope_theta": 5e6}, "rope_theta", 5e6),
        ({"rope_scaling": {"rope_type": "default"}}, "rope_theta", 1e6),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "rope_theta", 1e6),
        ({"tie_word_embeddings": True}, "tied", True),
        ({"architectures": None, "sliding_window": 4096, "max_window_layers": 1}, "hidden", 32),
        ({"layer_types": ["full_attention"] * 2}, "layers", 2),
    ],
)
def test_config_spellings(folder: Path, change: dict, field: str, value: object) -> None:
    save(folder, **change)
    assert getattr(read_model(folder / "config.json", "hand", None), field) == value


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "llama"}, "llama"),
        ({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, "qwen3_moe"),
        ({"architectures": ["Qwen3Model"]}, "Qwen3Model"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
        ({"layer_types": 3}, "sliding window"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "scaled RoPE"),
        ({"rope_scaling": {"type": "linear"}}, "scaled RoPE"),
        ({"rope_scaling": {"type": ["default"]}}, "scaled RoPE"),
        ({"rope_scaling": {"factor": 2.0}}, "scaled RoPE"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "different RoPE bases"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"hidden_size": -32}, "hidden_size is -32"),
        ({"hidden_size": 36}, "not a multiple of 8"),
        ({"num_key_value_heads": 3}, "4 query heads do not share 3"),
        ({"num_hidden_layers": 2**31 - 1}, "lacks tensor model.layers.2."),
        ({"num_hidden_layers": 1}, "11 tensor(s) more"),
        ({"head_dim": None}, "head_dim is None"),
        ({"head_dim": 32}, "q_proj.weight has shape [64, 32]"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ],
)
def test_config_refused(folder: Path, cache: Path, change: dict, word: str) -> None:
    save(folder, **change)
    refused(folder, word, cache=cache)


@pytest.mark.parametrize("key", sorted(set(CONFIG) - {"architectures", "head_dim", "rope_scaling"}))
def test_config_keys_missing_or_odd(folder: Path, cache: Path, key: str) -> None:
    """Only keys that transformers defaults may be missing; a value of another type is never accepted."""
    content = {name: value for name, value in CONFIG.items() if name != key}
    (folder / "config.json").write_text(json.dumps(content))
    if key in ("hidden_act", "attention_bias", "use_sliding_window", "tie_word_embeddings"):
        assert read_model(folder / "config.json", "hand", None) == MODEL
    else:
        refused(folder, key, cache=cache)
    for odd in (None, -1, "32", [], {}, float("inf")):
        (folder / "config.json").write_text(json.dumps(content | {key: odd}))
        refused(folder, key, cache=cache)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00", "[" * 100000])
def test_config_not_json(folder: Path, cache: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, "config.json", "JSON", cache=cache)


def test_positions_beyond_the_model(folder: Path, cache: Path) -> None:
    with pytest.raises(LabError, match=r"129 positions.*max_position_embeddings 128"):
        load(str(folder), None, 129, cache)
