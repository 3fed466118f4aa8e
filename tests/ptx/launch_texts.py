"""Yamls of launches, most of them wrong: a right one with one to three changes, by a generator of random numbers."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import yaml

X = {"name": "x", "type": "f32", "shape": 32, "fill": "random"}
Y = {"name": "y", "type": "f32", "shape": [4, 8], "expect": "y.npy", "tolerance": 1e-3}
RIGHT: tuple[dict[str, Any], ...] = (
    {"grid": 1, "block": 32, "shared": 16, "seed": 3, "arguments": [X, Y]},
    {"grid": [2, 1], "block": [8, 4], "arguments": [{**X, "fill": "y.npy", "shape": [4, 8]}, {**Y, "fill": "zeros"}]},
    {"arguments": [X, Y], "sweep": {"block": [32, [8, 4]], "grid": [1, 2]}, "timeout_s": 5},
    {"arguments": [X, Y], "sweep": [{"block": 32, "grid": 1, "seed": 4}, {"block": [16, 2]}], "races": False},
    {"arrays": [X], "arguments": [{"type": "u64", "address_of": ["x"]}, Y], "kernel": "k"},
)
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 10**30, 10**400, 2**31, 2**63, 2**64, "", " ",
    "x", "y", "..", "../y", "/", "\x7f", "ä", "1e3", "zeros", "none.npy", "y.npy", "f32", "u64", "cuda", "auto",
    [], {}, [[]], [{}], [1] * 70, [0], [-1], [2**40, 2**40], ["x", "x"], ["x", 0], [None], {"a": 1}, {1: 2},
    {"type": "s8", "value": 1}, [3, 4], "2026-01-01", "sm_80", [1, 2, 3, 4], {"block": 1}, {"absolute": -1},
    {"absolute": "x", "relative": 1}, "[1", 65536, 1 << 40, [65536, 65536],
)  # fmt: skip
KEYS = ("name", "type", "shape", "fill", "value", "address_of", "expect", "tolerance", "block", "grid", "define", "std",
        "include", "sweep", "arrays", "arch", "kernel", "out", "json", "file", "launch", "gird", "<<", "debug",
        "cache")  # fmt: skip
NOISE = "{}[]:,&*!|>'\"%@`#-?\t\n 1a"


def launch_texts(draw: random.Random, number: int) -> Iterator[str]:
    for _ in range(number):
        tree = copy.deepcopy(draw.choice(RIGHT))
        for _ in range(draw.choice((1, 1, 2, 3))):
            tree = _changed(tree, draw)
        text = yaml.safe_dump(tree, allow_unicode=True, default_flow_style=draw.choice((None, True, False)))
        yield _damaged(text, draw) if draw.random() < 0.25 else text


def _changed(tree: Any, draw: random.Random) -> Any:
    """The tree with one place changed: left out, replaced, wrapped, or with one key more."""
    places = [*_places(tree)]
    owner, key = draw.choice(places)
    how = draw.randrange(5)
    if how == 0:
        del owner[key]
    elif how == 1:
        owner[key] = [owner[key]] if draw.random() < 0.7 else {"value": owner[key]}
    elif how == 2 and isinstance(owner, dict):
        owner[draw.choice(KEYS)] = copy.deepcopy(draw.choice(ODD))
    else:
        owner[key] = copy.deepcopy(draw.choice(ODD))
    return tree or {"grid": 1}


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _damaged(text: str, draw: random.Random) -> str:
    """The text with a line twice, a character that means something in yaml, a deep list, or an end in the middle."""
    lines, at = text.splitlines(), draw.randrange(len(text))
    return draw.choice(
        (
            "\n".join([*lines, draw.choice(lines)]),
            text[:at] + draw.choice(NOISE) + text[at:],
            f"{text}\nblock: {'[' * 1200}{']' * 1200}",
            text[:at],
            f"{text}\nseed: {'9' * 5000}",
        )
    )
