"""Checkpoints with one fault in their bytes, their header or their config.json."""

import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.model.layout import Layout
from common.model.shapes import Model
from tests.strength.soak.hostile.attempt import Case

MODEL = Model("small", 32, 64, 1, 2, 1, 16, 97, 16, 1e6, 1e-6, True)


def checkpoints(rng: random.Random, fixed: Sequence[str], folder: Path) -> Iterator[Case]:
    """A checkpoint in `folder` with one fault; the case is to be attempted before the next one is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        name = rng.choice(sorted(DAMAGE))
        header, data, config = _valid_checkpoint()
        content, text = DAMAGE[name](rng, header, data, config)
        (folder / "model.safetensors").write_bytes(content)
        (folder / "config.json").write_text(text)
        yield Case(f"checkpoint: {name}", (*fixed, f"weights={folder}", "variant=baseline"))


def _valid_checkpoint() -> tuple[dict, bytes, dict]:
    """Header, data and config.json of a valid checkpoint."""
    from common.model.weights import hf_slots

    header, size = {}, 0
    for name, slot in hf_slots(Layout(MODEL)):
        header[name] = {"dtype": "BF16", "shape": list(slot.shape), "data_offsets": [size, size + 2 * slot.size]}
        size += 2 * slot.size
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": MODEL.hidden,
        "intermediate_size": MODEL.intermediate,
        "num_hidden_layers": MODEL.layers,
        "num_attention_heads": MODEL.query // MODEL.head_dim,
        "num_key_value_heads": MODEL.kv_heads,
        "head_dim": MODEL.head_dim,
        "vocab_size": MODEL.vocab,
        "max_position_embeddings": MODEL.positions,
        "rope_theta": MODEL.rope_theta,
        "rms_norm_eps": MODEL.rms_eps,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    }
    return header, b"\x10\x3c" * (size // 2), config


def _file(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _cut(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    whole = _file(header, data)
    return whole[: rng.randrange(len(whole))], json.dumps(config)


def _length(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    return struct.pack("<Q", rng.choice([0, 1, 1 << 40, (1 << 64) - 1])) + _file(header, data)[8:], json.dumps(config)


def _tensor(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    name = rng.choice(sorted(header))
    wrong = rng.choice(["dtype", "shape", "name", "gone"])
    entry = header.pop(name)
    if wrong == "dtype":
        header[name] = entry | {"dtype": rng.choice(["F64", "I8", "what", 5])}
    elif wrong == "shape":
        header[name] = entry | {"shape": [1, *entry["shape"]] if rng.random() < 0.5 else [*entry["shape"], -1]}
    elif wrong == "name":
        header[name + "?"] = entry
    return _file(header, data), json.dumps(config)


def _infinite(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    at = 2 * rng.randrange(len(data) // 2)
    value = rng.choice([b"\x80\x7f", b"\x80\xff", b"\xc0\x7f"])  # inf, -inf, NaN
    return _file(header, data[:at] + value + data[at + 2 :]), json.dumps(config)


def _pickle(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    return b"\x80\x04cos\nsystem\n(S'true'\ntR." + rng.randbytes(64), json.dumps(config)


def _noise(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    return rng.randbytes(rng.randrange(200)), json.dumps(config)


def _config(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    key = rng.choice([key for key in config if key.endswith(("_size", "_layers", "_heads"))])
    config[key] = rng.choice([0, -1, "many", None, [], 1e99, config[key] + 1])
    return _file(header, data), json.dumps(config)


def _config_text(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    text = json.dumps(config)
    return _file(header, data), rng.choice([text[: rng.randrange(len(text))], "[]", "null", "", "{", '{"a": NaN}'])


def _family(rng: random.Random, header: dict, data: bytes, config: dict) -> tuple[bytes, str]:
    """The config.json of another family, whose tensors these are not, with RoPE that may be scaled."""
    kind = rng.choice(["llama", "mistral", "qwen2"])
    scaled: dict = {"rope_type": rng.choice(["llama3", "yarn"]), "factor": rng.choice([8, 0, "8", None])}
    rope: Any = rng.choice([None, scaled, scaled | {"low_freq_factor": 1, "high_freq_factor": 4}, [], 5])
    config |= {"model_type": kind, "architectures": [f"{kind.title()}ForCausalLM"], "rope_scaling": rope}
    return _file(header, data), json.dumps(config)


Damage = Callable[[random.Random, dict, bytes, dict], tuple[bytes, str]]
DAMAGE: dict[str, Damage] = {
    "cut off": _cut,
    "length of the header": _length,
    "a tensor of another dtype, shape or name": _tensor,
    "NaN or infinity": _infinite,
    "a pickle": _pickle,
    "noise": _noise,
    "config.json: a value": _config,
    "config.json: its text": _config_text,
    "config.json: another family": _family,
}
