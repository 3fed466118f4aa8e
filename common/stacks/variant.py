"""Variants, named stacks and selections, as read from their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.model.expressions import Scratch
from common.stacks.knobs import Knob

SELECTS = ("every", "catalog", "steps")
LOWEST_ARCH = 75  # the oldest that the compiler supports
LAUNCHES = ("cooperative", "plain", "graph", "launches", "pdl")


@dataclass(frozen=True)
class Variant:
    """One optimization: its source, its claim, and its needs.

    parent     the stack it is composed on and compared with, innermost first; () is the baseline
    launch     one of LAUNCHES; see `common.compile.source.Source`
    min_arch   lowest compute capability, ten times: 80 for 8.0
    loader_warps  of a block, in addition to the computing threads
    why_not_bit_equal  reason for differences from its parent's results in the last bits; "": results must be equal
    published  the effect published by others
    excludes   variants that cannot be in the same stack; requires: variants that must be
    outside    variants that must stand before it in the stack, if they are in it
    scratch    regions of scratch for its own words: see `common.stacks.entry`
    overrides  members that its struct overrides, each with True if it calls `Base`'s
    """

    name: str
    file: Path
    idea: str
    parent: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    launch: str = LAUNCHES[0]
    min_arch: int = LOWEST_ARCH
    loader_warps: int = 0
    why_not_bit_equal: str = ""
    published: str = ""
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    scratch: Scratch = field(default_factory=dict)
    overrides: Mapping[str, bool] = field(default_factory=dict)

    @property
    def mixin(self) -> str:
        """The C++ struct in `file`: SplitKv for split_kv."""
        return "".join(part.capitalize() for part in self.name.split("_"))


@dataclass(frozen=True)
class NamedStack:
    """A list of variants with a name, innermost first, and knob values other than the defaults."""

    name: str
    idea: str
    variants: tuple[str, ...]
    parent: tuple[str, ...] = ()
    knobs: Mapping[str, Any] = field(default_factory=dict)
    published: str = ""


@dataclass(frozen=True)
class Selection:
    """A name for stacks chosen at the start of a run.

    selects  every: all variants; catalog: all variants and named stacks; steps: the prefixes of `default`, each on top
             of the one before
    """

    name: str
    selects: str
    default: str = ""
