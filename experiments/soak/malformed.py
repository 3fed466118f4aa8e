"""Inputs that are wrong in some way, made at random, and what the command line makes of them."""

import contextlib
import io
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from common.layout import Layout
from common.model import Model

MODEL = Model("small", 32, 64, 1, 2, 1, 16, 97, 16, 1e6, 1e-6, True)
# Each key with values that are wrong for it; `!` stands for text without any sense.
OVERRIDES = {
    "threads": ("0", "-32", "33", "2048", "1.5", "null", "[256]", "true", "!"),
    "blocks": ("0", "-1", "1e9", "2.5", "[8]", "true", "!"),
    "seed": ("-1", "4294967296", "0.5", "[1]", "false", "!"),
    "timeout_s": ("0", "-1", "null", "[]", "!"),
    "resume": ("2", "[]", "!"),
    "reproduce": ("!", "[a]", "20200101T000000-0123456789"),
    "archs": ("sm_90", "[sm_10]", "[90]", "null", "[!]"),
    "stack": (
        "vec128",
        "[vec128,vec128]",
        "[!]",
        "[cp_async,warp_split]",
        "[productive_spin]",
        "7",
        "[vec128,baseline]",
    ),
    "variant": ("!", "", "[vec128", "vec128,", "../vec128", "1"),
    "model": ("!", "gpt2", "../tiny"),
    "device": ("!", "tpu"),
    "weights": ("!", "/nowhere", ".", "null", "[a]", "a/b/c", "../../etc/passwd", "config.json"),
    "timing.steps": ("0", "-1", "1.5", "null", "!"),
    "timing.rounds": ("0", "401", "!"),
    "timing.interval": ("0", "-0.5", "null", "!"),
    "timing.positions": ("[]", "[-1]", "[1000000]", "[a]", "!"),
    "timing.stpes": ("3",),
    "validate.seeds": ("0", "-1", "1.5", "null", "!"),
    "validate.quick": ("3", "[]", "!"),
    "model.hidden": ("0", "-64", "63", "null", "!"),
    "model.layers": ("0", "-1", "1.5", "!"),
    "model.kv_heads": ("0", "3", "!"),
    "model.positions": ("0", "-1", "!"),
    "device.timeout_s": ("0", "-3", "null", "!"),
    "device.workers": ("0", "-3", "0.5", "!"),
    "results": ("/dev/null/r.jsonl", "/proc/r.jsonl", "null", "[a]"),
    "ratio": ("126", "8:0", "2:7", "!", "-1:9"),
    "tile": ("0", "99", "null", "!"),
    "json": ("3", "!"),
    "no_such_key": ("1", "null"),
}
Case = tuple[str, list[str]]  # what is wrong, and the arguments


def overrides(rng: random.Random) -> Iterator[Case]:
    """One key after another with a value that it cannot have."""
    while True:
        key = rng.choice(sorted(OVERRIDES))
        noise = "".join(rng.choices("abcxyz{}[]=:,$!?~'\"\\ ", k=rng.randint(1, 12)))
        value = rng.choice(OVERRIDES[key]).replace("!", noise)
        named = {"ratio": ["variant=warp_split"], "tile": ["variant=cp_async"]}.get(key, [])
        named = [] if key in ("stack", "variant") else named or ["variant=baseline"]
        yield f"{key}={value}", [*named, f"{key}={value}"]


def checkpoints(rng: random.Random, folder: Path) -> Iterator[Case]:
    """A checkpoint in `folder` with one thing wrong in its bytes, its header or its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        name = rng.choice(sorted(DAMAGE))
        header, data, config = _sound()
        content, text = DAMAGE[name](rng, header, data, config)
        (folder / "model.safetensors").write_bytes(content)
        (folder / "config.json").write_text(text)
        yield f"checkpoint: {name}", [f"weights={folder}", "variant=baseline"]


def told(argv: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `python -m experiments`, run in this process."""
    from experiments.__main__ import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return code, out.getvalue(), err.getvalue()


def faults(count: int, folder: Path, seed: int) -> list[str]:
    """Try `count` malformed inputs; one line for each that was not refused as it should be.

    As it should be: exit code 2, nothing on stdout, one line `error: ...` last on stderr and no traceback, the store as
    it was, and no new file beside it.
    """
    from common.records import Store

    rng = random.Random(seed)
    kinds = (overrides(rng), checkpoints(rng, folder / "checkpoint"))
    store = Store(folder / "store" / "records.jsonl")
    store.append({"kind": "kept"})
    before, wrong = store.path.read_bytes(), []
    fixed = ["device=host", "timing=none", "archs=[]", f"cache={folder / 'cache'}", f"results={store.path}"]
    for number in range(count):
        what, argv = next(kinds[number % 4 == 3])
        keys = {argument.partition("=")[0].partition(".")[0] for argument in argv}
        code, out, err = told([pair for pair in fixed if pair.partition("=")[0] not in keys] + argv)
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        intact = store.path.read_bytes() == before and [path.name for path in store.path.parent.iterdir()] == [
            store.path.name
        ]
        if code != 2 or out or len(lines) != 1 or "Traceback" in err or not intact:
            wrong.append(f"{what}: exit code {code}, store intact {intact}, {out[-200:]!r} {err[-300:]!r}")
    return wrong


def _sound() -> tuple[dict, bytes, dict]:
    """The header, the data and the config.json of a checkpoint with nothing wrong."""
    from common.weights import hf_slots

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
}
