"""Model shapes and traits from the config.json of a Hugging Face checkpoint; other architectures are refused."""

import json
import re
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any

from common.errors import LabError
from common.model.families import FAMILIES, SUPPORTED, Family
from common.model.rope import DEFAULT, LLAMA3, Scaling
from common.model.shapes import LARGEST, Model


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


DEFAULT_POSITIONS = 2048  # size of the KV cache when none is given and the model allows more

WINDOW, PART = "sliding_window", "partial_rotary_factor"
# config.json's name -> the field of Model
SHAPES = {
    "hidden_size": "hidden",
    "intermediate_size": "intermediate",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "vocab_size": "vocab",
}
READ = names(  # besides SHAPES; quantization_config by `common.model.quantized_layouts`
    """architectures attention_bias auto_map head_dim hidden_act layer_types max_position_embeddings mlp_bias model_type
    quantization_config rms_norm_eps rope_parameters rope_scaling rope_theta tie_word_embeddings use_sliding_window
    sliding_window partial_rotary_factor"""
)
# What is in none of these tables may change a number of a step; tests/test_known_keys.py compares with transformers.
# How a checkpoint was made, is loaded, trained or sampled from; names; ids of a tokenizer.
METADATA = names(
    """_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path attention_dropout
    attn_implementation base_model bos_token_id chunk_size_feed_forward decoder_start_token_id dtype eos_token_id
    finetuning_task gradient_checkpointing hidden_dropout id2label initializer_range is_decoder label2id mask_token_id
    max_sequence_length max_window_layers model_max_length model_name name_or_path num_labels output_attentions
    output_hidden_states pad_token pad_token_id prefix pretraining_tp problem_type processor_class return_dict
    sep_token_id seq_length task_specific_params tf_legacy_loss tie_encoder_decoder tokenizer_class
    tokenizer_model_max_length torch_dtype torchscript transformers.js_config transformers_version unk_token_id
    unsloth_fixed unsloth_version use_bfloat16 use_cache"""
)
GENERATION = names(  # transformers' GenerationConfig: configurations before 4.40 have all of it
    """assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens
    min_length no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens
    target_lookbehind temperature top_k top_p typical_p"""
)
OFF = ("attention_bias", "mlp_bias", "use_sliding_window", "use_mrope", "is_encoder_decoder", "add_cross_attention")
KEYS = {field: key for key, field in SHAPES.items()} | {"rms_eps": "rms_norm_eps"}  # a field's name, if another
BASE = {"rope_theta", "rope_type", "type"}  # keys of RoPE's parameters that do not scale it
SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")  # llama3's, as Scaling


def read_model(file: Path, name: str, positions: int | None) -> Model:
    """The model of `file`, a config.json.

    positions: size of the KV cache; None takes what the model allows, at most DEFAULT_POSITIONS. It allows
    max_position_embeddings, and no more than a sliding window: a cache within it is attended as a whole.
    Keys with harmless defaults in transformers' configurations may be absent (tied: false, head_dim: the family's);
    shapes, epsilon and the RoPE base must be given, because a wrong guess decodes plausible but wrong text. RoPE's base
    is `rope_theta`, or since transformers 5 `rope_parameters.rope_theta`.
    Raises LabError: unreadable, not JSON, another architecture, missing or malformed keys, anything not in FAMILIES.
    """
    config = read_json(file)
    family = _family(file, config)

    shapes: dict[str, Any] = {field: _integer(file, config, key) for key, field in SHAPES.items()}
    limits = {"max_position_embeddings": _integer(file, config, "max_position_embeddings")}
    if family.window and config.get(WINDOW, family.window) is not None:
        limits[WINDOW] = _integer(file, {WINDOW: family.window} | config, WINDOW)
    limit = min(limits, key=limits.__getitem__)
    if positions is None:
        positions = min(limits[limit], DEFAULT_POSITIONS)
    elif positions > limits[limit]:
        raise LabError(
            f"a cache of {positions} positions was requested, but {file} has {limit} {limits[limit]}",
            f"give model.positions={limits[limit]}, or less",
        )
    theta, rope = _rope(file, config)
    if family.head_dim is None and config.get("head_dim") is None:
        head_dim = shapes["hidden"] // shapes["heads"]
    else:
        head_dim = _integer(file, {"head_dim": family.head_dim} | config, "head_dim")
    epsilon, tied = _number(file, config, "rms_norm_eps"), _flag(file, config, "tie_word_embeddings")
    try:
        return Model(
            name=name,
            **shapes,
            head_dim=head_dim,
            positions=positions,
            rope_theta=theta,
            rms_eps=epsilon,
            tied=tied,
            qk_norm=family.qk_norm,
            qkv_bias=family.qkv_bias,
            rope=rope,
        )
    except LabError as error:  # names fields of Model
        by_key = partial(re.sub, r"\bmodel\.(\w+)", lambda field: KEYS.get(field[1], field[1]))
        raise LabError(f"{file}: {by_key(error.cause)}", by_key(error.remedy)) from None


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in `file`. Raises LabError when it cannot be read, or is something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(
            f"{file} cannot be read: {error.strerror or error}",
            "give the whole checkpoint folder, as transformers' save_pretrained writes it",
        ) from error
    except (ValueError, RecursionError) as error:
        raise LabError(f"{file} is not JSON: {error}", "download or save the checkpoint again") from error
    if not isinstance(content, dict):
        raise LabError(f"{file} holds {short(content)}, not a JSON object", "download or save the checkpoint again")
    return content


def check_keys(place: str, found: Mapping[str, Any], *known: Collection[str]) -> None:
    """Raise LabError for a key of `found` that is in none of `known` and asks for something. place: for messages."""
    for key in sorted(found.keys() - set().union(*known)):
        if found[key] is not None and found[key] not in ({}, []):
            raise LabError(
                f"{place} has {short(key)}: {short(found[key])}, which the lab does not know",
                f"take {short(key)} out if the model computes the same without it, else use another checkpoint",
            )


def _family(file: Path, config: dict[str, Any]) -> Family:
    """The family of a model. Raises LabError for a model with other arithmetic than that of FAMILIES."""
    kind = config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    classes = config.get("architectures") or [family and family.architecture]  # a bare configuration saves null
    if family is None or classes != [family.architecture]:
        raise LabError(
            f"{file} describes model_type {short(kind)}, architectures {short(classes)}",
            f"the kernels decode dense models of model_type {SUPPORTED} (Qwen3ForCausalLM and the like) only",
        )
    check_keys(str(file), config, SHAPES, READ, OFF, METADATA, GENERATION)
    if "AutoModelForCausalLM" in str(own := config.get("auto_map")):
        raise LabError(
            f"{file} brings code of its own (auto_map {short(own)}), which is never run",
            f"take auto_map out if transformers' {family.architecture} computes the same",
        )
    layers, count = config.get("layer_types"), config.get("num_hidden_layers")
    alike = isinstance(layers, list) and len(layers) == count and all(each == "full_attention" for each in layers)
    for feature, used in (
        *((key, _flag(file, config, key)) for key in OFF),
        (f"layer_types {short(layers)} for {short(count)} layers", layers is not None and not alike),
        (f"{WINDOW} {short(config.get(WINDOW))}", kind == "llama" and config.get(WINDOW) is not None),
        (f"hidden_act {short(config.get('hidden_act'))}", config.get("hidden_act", "silu") != "silu"),
        (PART, config.get(PART, 1) != 1),
    ):
        if used:
            raise LabError(
                f"{file} requires {feature}",
                "the kernels have silu, full attention, whole heads rotated, and biases only of q, k, v in qwen2",
            )
    return family


def _rope(file: Path, config: dict[str, Any]) -> tuple[float, str]:
    """RoPE's base from either spelling, and its scaling as `read_rope` reads it.

    Raises LabError for another scaling than Llama 3's, no base, or two that differ.
    """
    bases = [_number(file, config, "rope_theta")] if "rope_theta" in config else []
    scalings = []
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if rope is None:
            continue
        parts = rope if isinstance(rope, dict) else {"": rope}
        kinds = {str(parts[kind]) for kind in ("rope_type", "type") if kind in parts}
        further = {each for each in parts if (each, parts[each]) != (PART, 1)} - BASE
        plain = kinds <= {DEFAULT} and not further
        if not plain and (kinds != {LLAMA3} or further - {*SCALING}):
            raise LabError(
                f"{file} requires scaled RoPE: {key} is {short(rope)}",
                f"the kernels have plain RoPE, and rope_type {LLAMA3!r} with {', '.join(SCALING)}",
            )
        numbers = () if plain else (_number(file, rope, name) for name in SCALING)
        scalings.append(DEFAULT if plain else str(Scaling(*numbers)))  # `Model` refuses numbers without a meaning
        if "rope_theta" in rope:
            bases.append(_number(file, rope, "rope_theta"))
    if len({*bases}) != 1 or len({*scalings}) > 1:
        raise LabError(
            f"{file} needs one rope_theta and one scaling of RoPE, and has {bases} and {scalings}",
            "set rope_theta to the base the model was trained with (1000000 for Qwen3, 500000 for Llama 3)",
        )
    return bases[0], scalings[0] if scalings else DEFAULT


def _integer(file: Path, config: dict[str, Any], key: str) -> int:
    value = _value(file, config, key)
    if type(value) is not int or not 0 < value <= LARGEST:
        raise LabError(f"{file}: {key} is {short(value)}", f"give an integer from 1 to {LARGEST}")
    return value


def _number(file: Path, config: dict[str, Any], key: str) -> float:
    value = _value(file, config, key)
    if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
        raise LabError(f"{file}: {key} is {short(value)}", "give a finite number that is not negative")
    return float(value)


def _flag(file: Path, config: dict[str, Any], key: str) -> bool:
    value = config.get(key, False)
    if type(value) is not bool:
        raise LabError(f"{file}: {key} is {short(value)}", "give true or false")
    return value


def _value(file: Path, config: dict[str, Any], key: str) -> Any:
    if key not in config:
        raise LabError(f"{file} has no {key}", "give the config.json that belongs to the checkpoint")
    return config[key]
