"""Model shapes from the config.json of a Hugging Face Qwen3 checkpoint; other architectures are refused."""

import json
import sys
from pathlib import Path
from reprlib import repr as short
from typing import Any

from common.errors import LabError
from common.model.shapes import LARGEST, Model

DEFAULT_POSITIONS = 2048  # size of the KV cache when none is given and the model allows more

# config.json's name -> the field of Model
SHAPES = {
    "hidden_size": "hidden",
    "intermediate_size": "intermediate",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "vocab_size": "vocab",
}


def read_model(file: Path, name: str, positions: int | None) -> Model:
    """The model of `file`, a config.json.

    positions: size of the KV cache; None takes max_position_embeddings, at most DEFAULT_POSITIONS.
    Keys with harmless defaults in transformers' Qwen3Config may be absent (tied: false, head_dim: 128); shapes, epsilon
    and the RoPE base must be given, because a wrong guess decodes plausible but wrong text. RoPE's base is
    `rope_theta`, or since transformers 5 `rope_parameters.rope_theta`.
    Raises LabError: unreadable, not JSON, another architecture, missing or malformed keys, anything not dense Qwen3.
    """
    config = read_json(file)
    _refuse_other_architectures(file, config)

    shapes: dict[str, Any] = {field: _integer(file, config, key) for key, field in SHAPES.items()}
    longest = _integer(file, config, "max_position_embeddings")
    if positions is None:
        positions = min(longest, DEFAULT_POSITIONS)
    elif positions > longest:
        raise LabError(
            f"a cache of {positions} positions was requested, but {file} has max_position_embeddings {longest}",
            f"request at most {longest} positions",
        )
    return Model(
        name=name,
        **shapes,
        head_dim=_integer(file, {"head_dim": 128} | config, "head_dim"),
        positions=positions,
        rope_theta=_rope_theta(file, config),
        rms_eps=_number(file, config, "rms_norm_eps"),
        tied=_flag(file, config, "tie_word_embeddings"),
    )


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in `file`. Raises LabError when it cannot be read or is something else."""
    try:
        refuse_special(file)
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(
            f"{file} is missing", "give the whole checkpoint folder, as transformers' save_pretrained writes it"
        ) from None
    except OSError as error:
        raise LabError(
            f"{file} cannot be read: {error.strerror or error}", "check the file and its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise LabError(f"{file} is not JSON: {error}", "download or save the checkpoint again") from error
    if not isinstance(content, dict):
        raise LabError(f"{file} holds {short(content)}, not a JSON object", "download or save the checkpoint again")
    return content


def refuse_special(file: Path) -> None:
    """Raise LabError for a pipe or a device, which may never answer."""
    if file.exists() and not file.is_file():
        remedy = "give the whole checkpoint folder, as save_pretrained writes it"
        raise LabError(f"{file} cannot be read: it is no regular file", remedy)


def _refuse_other_architectures(file: Path, config: dict[str, Any]) -> None:
    """Raise LabError for a model with other arithmetic than dense Qwen3's."""
    kind = config.get("model_type")
    names = config.get("architectures") or ["Qwen3ForCausalLM"]  # a bare Qwen3Config saves null
    if kind != "qwen3" or names != ["Qwen3ForCausalLM"]:
        raise LabError(
            f"{file} describes model_type {short(kind)}, architectures {short(names)}",
            "the kernels decode dense Qwen3 (model_type 'qwen3', Qwen3ForCausalLM) only",
        )
    layers = config.get("layer_types") or []
    full = isinstance(layers, list) and all(kind == "full_attention" for kind in layers)
    for feature, used in (
        ("attention_bias", _flag(file, config, "attention_bias")),
        ("a sliding window (use_sliding_window, layer_types)", _flag(file, config, "use_sliding_window") or not full),
        (f"hidden_act {short(config.get('hidden_act'))}", config.get("hidden_act", "silu") != "silu"),
    ):
        if used:
            raise LabError(
                f"{file} requires {feature}",
                "the kernels have silu, full attention and no biases, like every published dense Qwen3",
            )


def _rope_theta(file: Path, config: dict[str, Any]) -> float:
    """RoPE's base from either spelling. Raises LabError for scaled RoPE, no base, or two different ones."""
    bases = [_number(file, config, "rope_theta")] if "rope_theta" in config else []
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if rope is None:
            continue
        plain = isinstance(rope, dict) and set(rope) <= {"rope_theta", "rope_type", "type"}
        if not plain or any(rope.get(kind, "default") != "default" for kind in ("rope_type", "type")):
            raise LabError(
                f"{file} requires scaled RoPE: {key} is {short(rope)}",
                "the kernels have plain RoPE; remove the scaling if the context you need fits without it",
            )
        if "rope_theta" in rope:
            bases.append(_number(file, rope, "rope_theta"))
    if not bases or bases != bases[:1] * len(bases):
        raise LabError(
            f"{file} gives {f'different RoPE bases {bases}' if bases else 'no rope_theta'}",
            "set rope_theta to the base the model was trained with (1000000 for Qwen3)",
        )
    return bases[0]


def _value(file: Path, config: dict[str, Any], key: str) -> Any:
    if key not in config:
        raise LabError(f"{file} has no {key}", "give the config.json that belongs to the checkpoint")
    return config[key]


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
