"""Keys of a config.json: those of transformers' own configurations are known, and any other is refused by name."""

import json
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from checkpoints import CONFIG, MODEL, refused, save

from common.model.families import FAMILIES
from common.model.hf_config import GENERATION, METADATA, OFF, READ, SHAPES, read_model
from common.model.quantized_layouts import ARGUMENTS, CALIBRATION, LOADING, STATUS

KNOWN = {*SHAPES, *READ, *OFF, *METADATA, *GENERATION}


@pytest.mark.parametrize("family", FAMILIES)
def test_all_that_transformers_has_for_a_family_is_known(family: str) -> None:
    """A key that a newer transformers brings is looked at before it is taken, or left out."""
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, FAMILIES[family].architecture).config_class
    assert {field.name for field in fields(kind)} <= KNOWN
    assert set(transformers.GenerationConfig._get_default_generation_params()) <= KNOWN


def test_all_that_the_libraries_write_of_a_quantization_is_known() -> None:
    transformers = pytest.importorskip("transformers")
    quantization = pytest.importorskip("compressed_tensors.quantization")
    of_weights = {"bits", "group_size", "desc_act", "sym", "format", "modules_in_block_to_quantize", "zero_point"}
    of_weights |= {"modules_to_not_convert", "kwargs"}
    for kind in (transformers.GPTQConfig, transformers.AwqConfig):
        assert set(signature(kind).parameters) <= of_weights | CALIBRATION | LOADING
    assert set(quantization.QuantizationArgs.model_fields) == ARGUMENTS
    rest = {"config_groups", "kv_cache_scheme", "format", "ignore"}
    rest |= {"moe_sparsity_config"}  # only if it is null
    assert set(quantization.QuantizationConfig.model_fields) <= rest | STATUS | LOADING


def test_what_says_nothing_of_the_arithmetic_is_taken(tmp_path: Path) -> None:
    """All of it at once, as older versions of transformers wrote it; and what is null or empty asks for nothing."""
    save(tmp_path / "model", **dict.fromkeys(METADATA | GENERATION, 1), mup_scale=None, experts=[], mrope={})
    assert read_model(tmp_path / "model" / "config.json", "hand", None) == MODEL


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("residual_multiplier", 0.5),
        ("logits_scaling", 8),
        ("final_logit_softcapping", 30.0),
        ("query_pre_attn_scalar", 256),
        ("per_layer_config", {"0": {"rms_norm_eps": 1.0}}),
        ("num_local_experts", 4),
        ("text_config", {"hidden_size": 32}),
        ("compression_config", {"format": "pack-quantized"}),
        ("use_rope", False),
        ("is_encoder_decoder", True),
        ("use_mrope", True),
        ("auto_map", {"AutoModelForCausalLM": "modeling.Model"}),
        ("layer_types", ["full_attention"] * 3),  # there are two layers
    ],
)
def test_what_may_change_it_is_refused_by_name(key: str, value: Any, tmp_path: Path) -> None:
    save(tmp_path / "model", **{key: value})
    refused(tmp_path / "model", key, cache=tmp_path / "cache")


def test_code_for_a_tokenizer_is_no_code_of_the_model(tmp_path: Path) -> None:
    file = save(tmp_path / "model").with_name("config.json")
    file.write_text(json.dumps(CONFIG | {"auto_map": {"AutoTokenizer": ["tokenization.Own", None]}}))
    assert read_model(file, "hand", None) == MODEL
