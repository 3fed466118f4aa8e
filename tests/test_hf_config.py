"""config.json: keys that make the model, and keys refused by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import CONFIG, MODEL, refused, save

from common.errors import LabError
from common.model.hf_config import read_model
from common.model.shapes import Model
from common.model.weights import load


def test_config_becomes_the_model(folder: Path) -> None:
    assert read_model(folder / "config.json", "hand", None) == MODEL
    assert read_model(folder / "config.json", "hand", 40).positions == 40


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
        ({"partial_rotary_factor": 1.0}, "head_dim", 16),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 1.0}}, "rope", "default"),
    ],
)
def test_config_spellings(folder: Path, change: dict, field: str, value: object) -> None:
    save(folder, **change)
    assert getattr(read_model(folder / "config.json", "hand", None), field) == value


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "llama"}, "model_type 'llama', architectures ['Qwen3ForCausalLM']"),
        ({"model_type": ["qwen3"]}, "model_type ['qwen3']"),
        ({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, "qwen3_moe"),
        ({"architectures": ["Qwen3Model"]}, "Qwen3Model"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types ['full_attention', 'sliding"),
        ({"layer_types": 3}, "layer_types 3"),
        ({"layer_types": ["full_attention"], "num_hidden_layers": 10**30}, "layer_types ['full_attention'] for 1"),
        ({"layer_types": 0}, "layer_types 0"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}}, "'partial_rotary_factor': 0.5"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "scaled RoPE"),
        ({"rope_scaling": {"type": "linear"}}, "scaled RoPE"),
        ({"rope_scaling": {"type": ["default"]}}, "scaled RoPE"),
        ({"rope_scaling": {"factor": 2.0}}, "scaled RoPE"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "needs one rope_theta"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"quantization_config": {"quant_method": "fp8"}}, "q_proj.weight in BF16"),
        ({"hidden_size": -32}, "hidden_size is -32"),
        ({"hidden_size": 36}, "hidden_size is 36, not a multiple of 8"),
        ({"num_key_value_heads": 3}, "make num_attention_heads a multiple of num_key_value_heads"),
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


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SCALED = {"rope_type": "llama3", **LLAMA3}
FAMILIES = {  # model_type: architecture, and what the model differs in from that of Qwen3
    "llama": ("LlamaForCausalLM", {"qk_norm": False}),
    "mistral": ("MistralForCausalLM", {"qk_norm": False}),
    "qwen2": ("Qwen2ForCausalLM", {"qk_norm": False, "qkv_bias": True}),
    "qwen3": ("Qwen3ForCausalLM", {}),
}


def write(folder: Path, kind: str, without: tuple[str, ...] = (), **change: object) -> Path:
    """A config.json of a family; the file."""
    content = CONFIG | {"model_type": kind, "architectures": [FAMILIES[kind][0]], "sliding_window": None} | change
    file = folder / "config.json"
    file.write_text(json.dumps({key: value for key, value in content.items() if key not in without}))
    return file


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_family_has_its_traits(folder: Path, kind: str) -> None:
    traits = FAMILIES[kind][1]
    assert read_model(write(folder, kind), "hand", None) == replace(MODEL, **traits)
    rope = (
        {"rope_parameters": {"rope_theta": 1e6, **SCALED}},
        {"rope_scaling": SCALED},
        {"rope_scaling": {"type": "llama3", **LLAMA3}},
    )
    for spelled in rope:
        without = ("rope_scaling", "rope_theta") if "rope_parameters" in spelled else ()
        found = read_model(write(folder, kind, without, **spelled), "hand", None)
        assert found == replace(MODEL, **traits, rope="llama3:8:1:4:64")


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_configuration_of_transformers_is_read_as_it_means(folder: Path, kind: str) -> None:
    """As save_pretrained writes it, with what transformers takes for a head_dim that is not given."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, FAMILIES[kind][0]).config_class(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, max_position_embeddings=128, rope_parameters={"rope_theta": 5e5, **SCALED},
        **({"sliding_window": None} if kind == "mistral" else {}),
    )  # fmt: skip
    config.save_pretrained(folder)
    found = read_model(folder / "config.json", "hand", None)
    expected = Model("hand", 64, 48, 2, 4, 2, getattr(config, "head_dim", None) or 16, 64, 128, 5e5, 1e-6, False)
    assert found == replace(expected, **FAMILIES[kind][1], rope="llama3:8:1:4:64")


def test_a_head_is_its_share_of_the_hidden_size_where_none_is_given(folder: Path) -> None:
    for kind in ("llama", "mistral", "qwen2"):
        for without, change in ((("head_dim",), {}), ((), {"head_dim": None})):
            assert read_model(write(folder, kind, without, **change), "hand", None).head_dim == 8


@pytest.mark.parametrize(
    ("kind", "change", "word"),
    [
        ("llama", {"sliding_window": 64}, "sliding_window 64"),
        ("llama", {"rope_scaling": SCALED | {"type": "default"}}, "scaled RoPE"),
        ("llama", {"rope_scaling": SCALED | {"attention_factor": 1.0}}, "scaled RoPE"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "config.json has no low_freq_factor"),
        ("llama", {"rope_scaling": SCALED | {"factor": "8"}}, "factor is '8'"),
        ("llama", {"rope_scaling": SCALED | {"factor": 0.5}}, "rope 'llama3:0.5:1:4:64' is not known"),
        (
            "llama",
            {"rope_scaling": SCALED, "rope_parameters": {"rope_type": "default"}},
            "one scaling of RoPE",
        ),
        ("mistral", {"sliding_window": 0}, "sliding_window is 0; give an integer"),
        ("mistral", {"sliding_window": "4096"}, "sliding_window is '4096'"),
    ],
)
def test_other_arithmetic_of_each_family_is_refused(
    folder: Path, cache: Path, kind: str, change: dict, word: str
) -> None:
    write(folder, kind, **change)
    refused(folder, word, cache=cache)


@pytest.mark.parametrize(
    ("window", "longest", "key"),
    [
        ({"sliding_window": None}, 16384, "max_position_embeddings"),
        ({"sliding_window": 64}, 64, "sliding_window"),
        ({"sliding_window": 16384}, 16384, "max_position_embeddings"),
        ({"sliding_window": 20000}, 16384, "max_position_embeddings"),
        ({}, 4096, "sliding_window"),  # what transformers takes by default
    ],
)
def test_a_cache_fits_the_window(folder: Path, window: dict, longest: int, key: str) -> None:
    """Each position of such a cache is within the window of the last."""
    file = write(folder, "mistral", () if window else ("sliding_window",), max_position_embeddings=16384, **window)
    assert read_model(file, "hand", None).positions == min(longest, 2048)
    assert read_model(file, "hand", longest).positions == longest
    said = rf"cache of {longest + 1} positions .* has {key} {longest}; give model\.positions={longest}, or less"
    with pytest.raises(LabError, match=said):
        read_model(file, "hand", longest + 1)


@pytest.mark.parametrize(
    ("kind", "word"), [("llama", "4 tensor(s) more"), ("qwen2", "lacks tensor model.layers.0.self_attn.q_proj.bias")]
)
def test_the_weights_of_another_family_are_refused(folder: Path, cache: Path, kind: str, word: str) -> None:
    """Qwen3's tensors under the config.json of another family."""
    write(folder, kind)
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
