"""Command lines with one value that is wrong for its key, for every command of the lab."""

import random
from collections.abc import Iterator, Mapping, Sequence

from common import ROOT
from tests.strength.soak.hostile.attempt import Case

NOISE = "abcxyz{}[]=:,$!?~'\"\\ "  # characters that mean something to Hydra, YAML or a shell
NO_STORE = ("/dev/null/r.jsonl", "/proc/r.jsonl", "/dev/null", "/dev/zero", "/dev/full", "/dev", "null")
# Each key with values that are wrong for it; `!` is replaced by random characters.
OVERRIDES = {
    "threads": ("0", "-32", "33", "2048", "1.5", "null", "[256]", "true", "!"),
    "blocks": ("0", "-1", "1e9", "2.5", "[8]", "true", "!"),
    "seed": ("-1", "4294967296", "0.5", "[1]", "false", "!"),
    "timeout_s": ("0", "-1", "null", "[]", "!"),
    "resume": ("2", "[]", "!"),
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
    "results": (*NO_STORE, "[a]"),
    "ratio": ("126", "8:0", "2:7", "!", "-1:9"),
    "tile": ("0", "99", "null", "!"),
    "json": ("3", "!"),
    "no_such_key": ("1", "null"),
}
# The same for the other commands, with the arguments that make the rest of the line right.
COMMANDS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Sequence[str]]]] = {
    "experiments.generate": (
        ("variant=baseline", "model=tiny", "prompt_ids=[1,2]", "max_tokens=1"),
        {
            "prompt_ids": ("[]", "[-1]", "[503]", "[1.5]", "many", "null", "!"),
            "max_tokens": ("0", "-1", "1000", "1.5", "null", "!"),
            "stop": ("3", "[]", "!"),
            "stop_strings": ("3", "x", "[1]", "!", '[""]', '["\\d"]', "[${x}]", '["\udcff"]'),
            "temperature": ("-1", "1e-9", "nan", "1e9", "null", "!"),
            "top_k": ("-1", "1.5", "null", "!"),
            "top_p": ("0", "1.5", "-0.1", "null", "!"),
            "repetition_penalty": ("0", "-1", "1e9", "null", "!"),
            "prompt": ("once", "!"),
            "variant": ("all", "!", "../vec128"),
            "experiment": ("ablation",),
            "results": NO_STORE,
            "no_such_key": ("1",),
        },
    ),
    "experiments.serve": (
        ("variant=baseline", "model=tiny", "port=0"),
        {
            "bind": ("0.0.0.0", "null", "[]", "3"),
            "port": ("-1", "65536", "http", "null", "!"),
            "queue": ("-1", "1.5", "null", "!"),
            "deadline_s": ("0", "-1", "null", "!"),
            "body_kb": ("0", "null"),
            "variant": ("all", "!", "../vec128"),
            "experiment": ("ablation",),
            "no_such_key": ("1",),
        },
    ),
    "tests.strength.mutants": (
        ("only=epoch", "processes=1"),
        {
            "operators": ("2", "x"),
            "only": ("no such mutant anywhere", "[]"),
            "processes": ("0", "-1", "x", "null"),
            "results": NO_STORE,
            "seed": ("-1", "x"),
        },
    ),
    "tests.strength.soak": (
        ("kills=1", "validations=1", "inputs=1"),
        {
            "kills": ("0", "-1", "x", "null", "1.5"),
            "validations": ("0", "x"),
            "inputs": ("0", "[]"),
            "seed": ("-1", "x"),
            "results": NO_STORE,
            "blows": ("3",),
        },
    ),
    "experiments.evidence": (("plan=true",), {"results": NO_STORE, "budget_s": ("0", "x"), "only": ("[nope]", "x")}),
    "experiments.ptx": (
        (f"file={ROOT / 'tests/samples/softmax.ptx'}", "arguments=[]"),
        {
            "file": ("/nowhere.ptx", "README.md", "null", "!"),
            "launch": ("/nowhere.yaml", "README.md", "[]", "!"),
            "kernel": ("nope", "[]", "!"),
            "grid": ("0", "-1", "[1,1,1,1]", "x"),
            "block": ("0", "1.5", "null", "!"),
            "shared": ("-1", "x"),
            "arrays": ("3", "[3]", "[{type:f32,value:1}]", "[{type:u64,address_of:x}]", "!"),
            "sweep": ("3", "[]", "{block:32}", "{gird:[1]}", "[{block:0}]", "!"),
            "define": ("3", "[1]", "{1x:2}", "!"),
            "include": ("3", "[/nowhere]", "!"),
            "std": ("0", "18", "c++17", "!"),
            "device": ("cuda", "host", "null", "!"),
            "arguments": ("3", "[3]", "[{type:f32}]", "[{type:f16,value:x}]", "[{type:s8,shape:0}]", "!"),
            "seed": ("-1", "x"),
            "races": ("3", "!"),
            "timeout_s": ("0", "x"),
            "no_such_key": ("1",),
        },
    ),
    "experiments.report": (
        ("check=true",),
        {"check": ("3", "[]", "!"), "records": ("[x.jsonl]",), "no_such_key": ("1",)},
    ),
    "experiments.show": ((), {"id": ("no-such-record",), "results": NO_STORE}),
    "profiles": (
        ("tool=timeline", "variant=baseline", "model=tiny"),
        {
            "tool": ("gdb", "null", "!"),
            "position": ("-1", "64", "x", "null"),
            "tokens": ("0", "-1", "65", "x"),
            "keep": ("3",),
            "variant": ("all",),
            "nsys.options": ("[3]", "x", "[trace=cuda]"),
            "results": NO_STORE,
        },
    ),
}
# Options of experiments that would leave an empty or a wrong table.
OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "ablation": {"variants": ("[nope]", "vec128", "[3]"), "position": ("-1", "x"), "gpu": ("nope",), "best": ("nope",)},
    "positions": {"positions": ("[99999]", "[]", "[-1]", "x"), "gpu": ("nope",)},
    "counts": {"variants": ("[nope]", "x")},
    "sass": {"variants": ("[nope]",)},
    "roofline": {"gpu": ("nope",), "position": ("-1", "x")},
    "rivals": {
        "rivals": ("[nope]", "x"),
        "tokens": ("0", "1", "x", "99999"),
        "prompt_ids": ("[-1]", "[]", "[99999999]"),
        "positions": ("[0]", "[]", "x", "[99999]"),
        "servers": ("[nope]", "x", "['http://']", "[ftp://a/v1]"),
    },
    "quality": {"ids": ("[1]", "[-1]", "[99999999]"), "tokens": ("1", "x"), "variants": ("[nope]",)},
    "sync_cost": {"cpu_blocks": ("0", "x", "100000")},
    "tune": {"stack": ("nope", "baseline"), "variants": ("[nope]", "x"), "trials": ("0", "x")},
    "nope": {"position": ("1",)},
}
FLAGS = (("--no-such-flag",), ("--cfg",), ("--cfg", "nope"), ("--config-name",), ("-x",), ("variant",), ("=3",), ("+",))


def runs(rng: random.Random, fixed: Sequence[str]) -> Iterator[Case]:
    """One key of a run with a value that it cannot have. fixed: the arguments of every line, where not overridden."""
    while True:
        key = rng.choice(sorted(OVERRIDES))
        value = rng.choice(OVERRIDES[key]).replace("!", _noise(rng))
        taker = {"ratio": ["variant=warp_split"], "tile": ["variant=cp_async"]}.get(key, ["variant=baseline"])
        yield _case("experiments", key, value, [] if key in ("stack", "variant") else taker, fixed)


def commands(rng: random.Random, fixed: Sequence[str]) -> Iterator[Case]:
    """One key of another command with a value that it cannot have."""
    takes = {
        "experiments.generate": fixed,
        "experiments.serve": fixed,
        "tests.strength.mutants": [word for word in fixed if word.startswith(("cache=", "results="))],
        "profiles": fixed,
        "experiments.evidence": [word for word in fixed if word.startswith("results=")],
        "experiments.show": [word for word in fixed if word.startswith("results=")],
    }
    while True:
        module = rng.choice(sorted(COMMANDS))
        rest, keys = COMMANDS[module]
        key = rng.choice(sorted(keys))
        yield _case(module, key, rng.choice(keys[key]).replace("!", _noise(rng)), rest, takes.get(module, ()))


def options(rng: random.Random, fixed: Sequence[str]) -> Iterator[Case]:
    """One option of an experiment with a value that it cannot have."""
    while True:
        experiment = rng.choice(sorted(OPTIONS))
        key = rng.choice(sorted(OPTIONS[experiment]))
        value = rng.choice(OPTIONS[experiment][key])
        rest = [f"experiment={experiment}", "model=tiny"]
        yield _case("experiments", f"options.{key}", value, rest, [word for word in fixed if "timing" not in word])


def flags(rng: random.Random, fixed: Sequence[str]) -> Iterator[Case]:
    """Flags and words that are no `key=value`."""
    while True:
        module, words = rng.choice(["experiments", *sorted(COMMANDS)]), rng.choice(FLAGS)
        yield Case(f"{module} {' '.join(words)}", words, module)


def _case(module: str, key: str, value: str, rest: Sequence[str], fixed: Sequence[str]) -> Case:
    """`key=value` with what it needs; arguments for the same key, or the same group, are left out."""
    given = key.partition(".")[0] if not key.startswith("options.") else key
    other = [word for word in (*fixed, *rest) if word.partition("=")[0].partition(".")[0] != given]
    if key == "stack":
        other = [word for word in other if not word.startswith("variant=")]
    return Case(f"{module} {key}={value}", (*other, f"{key}={value}"), module)


def _noise(rng: random.Random) -> str:
    return "".join(rng.choices(NOISE, k=rng.randint(1, 12)))
