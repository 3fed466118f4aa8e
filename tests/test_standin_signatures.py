"""The stand-in against the real CuPy: every public name is CuPy's, with the same parameters in the same places."""

import inspect
import re
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from standin import installed

MODULES = (
    "cupy",
    "cupyx",
    "cupy.cuda",
    "cupy.cuda.runtime",
    "cupy.cuda.driver",
    "cupy.cuda.memory",
    "cupy.cuda.compiler",
)
SELF = {"self", "cls"}


@pytest.fixture(scope="module")
def both() -> dict[str, tuple[ModuleType, ModuleType]]:
    """The real module and the stand-in's, by name."""
    real = {name: found(name) for name in MODULES}
    with installed():
        return {name: (real[name], found(name)) for name in MODULES}


def found(name: str) -> ModuleType:
    """A module by its dotted name, as an attribute: some of CuPy's have another home."""
    package, *path = name.split(".")
    return reduce(getattr, path, import_module(package))


def public(module: ModuleType) -> dict[str, Any]:
    """Names of the stand-in's module: its own classes and functions, not modules and numpy's types."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_") and callable(value)}
    return {name: value for name, value in own.items() if (getattr(value, "__module__", "") or "").startswith("cupy")}


def parameters(function: Any) -> list[tuple[str, str, Any]] | None:
    """Name, kind and default of each parameter, from the signature or Cython's first line of the docstring.

    None: the real one says nothing (a slot, or a class without a line).
    """
    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):
        return _documented(function)
    kept = [p for p in own.parameters.values() if p.name not in SELF]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in kept):
        return _documented(function)
    return [(p.name, "keyword" if p.kind is p.KEYWORD_ONLY else "any", _default(p.default)) for p in kept]


def _documented(function: Any) -> list[tuple[str, str, Any]] | None:
    line = (function.__doc__ or "").strip().partition("\n")[0]
    match = re.match(r"[\w.]+\((.*)\)", line)
    if not match:
        return None
    kind, listed = "any", []
    for part in filter(None, (part.strip() for part in re.split(r",(?![^(]*\))", match[1]))):
        if part == "*":
            kind = "keyword"
        elif not part.startswith("*") and part not in SELF:
            declared, _, default = part.partition("=")
            listed.append((declared.split()[-1], kind, _default(default)))
    return listed


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value == "":
        return ""
    return "float" if value is float else str(value).strip("'\"")


def test_every_name_of_the_stand_in_is_cupys(both):
    for module, (real, standin) in both.items():
        for name, value in public(standin).items():
            assert hasattr(real, name), f"{module}.{name}"
            for member in vars(value) if inspect.isclass(value) else ():
                if not member.startswith("_") and member not in ("dtype", "shape"):
                    assert hasattr(getattr(real, name), member), f"{module}.{name}.{member}"


def test_every_function_has_cupys_parameters(both):
    compared = []
    for module, (real, standin) in both.items():
        for name, value in public(standin).items():
            theirs = getattr(real, name)
            pairs = {name: (theirs, value)}
            if inspect.isclass(value):
                own = {key: each for key, each in vars(value).items() if inspect.isfunction(each) and key[0] != "_"}
                pairs |= {f"{name}.{key}": (getattr(theirs, key), each) for key, each in own.items()}
            for label, (wanted, given) in pairs.items():
                want, have = parameters(wanted), parameters(given)
                if None not in (want, have) and not (inspect.isclass(given) and issubclass(given, Exception)):
                    assert have == want, f"{module}.{label}"
                    compared.append(label)
    assert {"RawModule", "RawKernel", "asarray", "ndarray.set", "ndarray.get", "Stream", "Event", "zeros_pinned"} <= {
        *compared
    }
    assert len(compared) > 40


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RawModule", {"code": b"text"}),
        ("RawModule", {"code": "text", "options": ["-std=c++17"]}),
        ("RawModule", {"code": "text", "option": ()}),
        ("RawModule", {}),
        ("RawKernel", {"code": "text", "name": None, "flags": ()}),
    ],
)
def test_what_cupy_refuses_is_refused_with_the_same_kind_of_error(both, name, arguments):
    real, standin = both["cupy"]
    with pytest.raises(TypeError) as theirs:
        getattr(real, name)(**arguments)
    with pytest.raises(type(theirs.value)):
        getattr(standin, name)(**arguments)


def test_constants_are_cupys(both):
    for module in ("cupy.cuda.driver", "cupy.cuda.runtime"):
        real, standin = both[module]
        named = {name: value for name, value in vars(standin).items() if isinstance(value, int) and name[0] != "_"}
        assert named == {name: getattr(real, name) for name in named}
        assert named


def test_error_messages_are_cupys(both):
    (real, standin) = both["cupy.cuda.runtime"]

    with installed():
        from standin_gpu.errors import CODES
    for code in CODES:
        assert str(standin.CUDARuntimeError(code)) == str(real.CUDARuntimeError(code)), code
