"""Calls of the lab in Python with one argument that its type forbids: LabError in one line, or a legal answer."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy

from common.compile.sass import Resources
from common.devices.counters import Counts
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.lab import Lab
from experiments.run.steps import LabStack

# The calls that docs/python.md promises, by class.
SURFACE: Mapping[type, tuple[str, ...]] = {
    Lab: ("stack", "records"),
    LabStack: ("compile", "resources", "validate", "counts", "measure", "timeline", "record"),
    Counts: ("total", "of", "bytes_by_width", "loaded"),
    Resources: ("count",),
}
# By the name of a parameter: a right value, for the parameters that are not the wrong one.
RIGHT = {"named": "vec128", "field": "shuffles", "stage": "qkv", "data": "kv", "opcode": "LDG"}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 5, -1, 1 << 70, 0.5, float("nan"), float("inf"), "", " ", "x", "vec182", "a\nb", "${x}"),
    *(b"vec128", [], [None], ["vec128", 5], [[]], (), {}, {"a": 1}, {1, 2}, object(), len, int, 1j, numpy.zeros(2)),
)
Call = tuple[str, Callable[[], Any]]  # its title and itself


def calls(rng: random.Random, lab: Lab) -> Iterator[Call]:
    """One call after another, each wrong in one argument; every call of the surface is as likely as another."""
    surface = {title: (call, names) for title, call, names in _surface(lab) if names}
    while True:
        title = rng.choice(sorted(surface))
        call, names = surface[title]
        name, value = rng.choice(names), rng.choice(VALUES)
        arguments, named = _arguments(call, name, value)
        yield f"{title}({name}={value!r})", partial(call, *arguments, **named)


def violations(count: int, lab: Lab, rng: random.Random) -> list[str]:
    """Make `count` calls; one line for each that raises anything but LabError."""
    return [line for line in (broken(*call) for call in islice(calls(rng, lab), count)) if line]


def broken(title: str, call: Callable[[], Any]) -> str:
    """The broken part of the rule in one line, or "": the call returns, or raises LabError."""
    try:
        call()
    except LabError:  # one line, as all of them
        return ""
    except (Exception, SystemExit) as error:  # any other escaping exception is a finding
        return f"{title}: {type(error).__name__}: {error}"
    return ""


def _surface(lab: Lab) -> Iterator[tuple[str, Callable[..., Any], list[str]]]:
    """Every call: a title, the bound call, the names of its parameters, with each knob and each key of a lab."""
    catalog = read_catalog()
    yield "Lab", Lab, ["overrides", *sorted(catalog.keys)]
    kernel = Resources("sm_90", "decode", 32, 0, 0, 0, 0, {"LDG.E.128": 1})
    for one in (lab, lab.stack("warp_split"), Counts({}), kernel):
        for call in SURFACE[type(one)]:
            names = list(inspect.signature(getattr(one, call)).parameters)
            if "knobs" in names:
                names = [*(name for name in names if name != "knobs"), *sorted(catalog.knobs)]
            yield f"{type(one).__name__}.{call}", getattr(one, call), names


def _arguments(call: Callable[..., Any], wrong: str, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments: `value` for the parameter, key or knob `wrong`, right ones where some must be."""
    parameters = inspect.signature(call).parameters
    needed = {name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD}
    listed = [
        value if name == wrong else RIGHT[name]
        for name, one in parameters.items()
        if name == wrong or (name in needed and one.default is one.empty)
    ]
    return listed, {} if wrong in parameters else {wrong: value}
