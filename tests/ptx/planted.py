"""Faults to plant: each ordering call of the kernels left out, at every place, and the faults of tests/port."""

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml
from composed import CATALOG, NAMED, VARIANTS, Composed
from port_faults import CHANGED

from common import ROOT
from common.compile.source import Source
from common.model.shapes import Model

SMALLEST = {"slots": 2, "kb": 6, "window": 2, "chunk": 16}  # rings: each slot is used again and again
ORDERING = re.compile(
    r"(?:port::(?:block_barrier|warp_barrier|named_sync|named_arrive|fence|fence_proxy_async|mbarrier_init_fence|"
    r"mbarrier_arrive|copy_commit|copy_wait<[^>;]*>)|wait_for_phases?)\((?:[^()]|\([^()]*\))*\);"
)
STACKS = {str(one): one for one in (*VARIANTS, *NAMED)}
EQUIVALENT = yaml.safe_load((Path(__file__).parent / "equivalent.yaml").read_text())


@dataclass(frozen=True)
class Fault:
    """A wrong text instead of a right one, which is unique in its file. name: what is wrong, and where."""

    name: str
    file: str
    text: str
    other: str

    def __str__(self) -> str:
        return self.name

    def in_source(self, source: Source) -> Source | None:
        """The source with the fault; None where it does not have that text."""
        return replace(source, text=source.text.replace(self.text, self.other)) if self.text in source.text else None

    @property
    def equivalent(self) -> str:
        """Reason why no run can differ, or ""."""
        found = (one["reason"] for one in EQUIVALENT if one["fault"] == self.name)
        return next(found, "")


def left_out() -> list[Fault]:
    """Each call that orders, left out at each of its places."""
    found = []
    for path in (*sorted((ROOT / "common/kernel").glob("*.cuh")), *sorted((ROOT / "variants").glob("*.cu"))):
        text = path.read_text()
        for call in ORDERING.finditer(text) if path.name not in ("port.cuh", "tensor_port.cuh") else ():
            begin, end = call.span()
            while text.count(text[begin:end]) > 1:  # many are alike: with the lines around it
                begin, end = max(text.rfind("\n", 0, begin), 0), text.find("\n", end + 1)
            file, line = str(path.relative_to(ROOT)), text.count("\n", 0, call.start()) + 1
            other = text[begin : call.start()] + ";" + text[call.end() : end]
            found.append(Fault(f"{file}:{line} {call[0]}", file, text[begin:end], other))
    return found


def of_port() -> list[Fault]:
    """The faults of common/kernel/port.cuh and tensor_port.cuh for which tests/port compares PTX."""
    return [
        Fault(re.sub(r"\s+", " ", f"{function}: {text} -> {other}"), "common/kernel/port.cuh", text, other)
        for function, text, other in CHANGED
    ]


def smallest(stack: Composed) -> Composed:
    """The stack with the smallest rings that its knobs allow."""
    known = {knob.name for name in stack.names for knob in CATALOG.variants[name].knobs}
    return Composed(stack.names, {**stack.given, **{name: SMALLEST[name] for name in SMALLEST if name in known}})


@cache
def source_of(name: str, model: Model) -> Source:
    return smallest(STACKS[name]).source(model)


def sources(fault: Fault, model: Model) -> list[Source]:
    """Sources with the fault: that of the variant's own stack first, then those of others, the shortest first."""
    own = Path(fault.file).stem
    names = sorted(STACKS, key=lambda name: (not name.endswith(own), len(name)))
    return [found for name in names if (found := fault.in_source(source_of(name, model)))]
