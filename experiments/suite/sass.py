"""What the compiler made of each variant: instructions and resources for each arch, and the change to the parent."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from common.catalog import read_catalog
from common.errors import LabError
from common.model import STAGES
from common.nvrtc import compile_all
from common.sass import Resources, resources
from common.source import Source, build
from common.stack import Stack, title
from experiments.inquiry import Inquiry
from experiments.outcome import COUNTED, Outcome

QUESTION = "what the compiler makes of each variant, and what that changes against its parent"
NOTES = (
    "Instructions as they stand in the code, each once; a loop runs them many times. `change` is the largest "
    "differences to the parent. Of a variant with a kernel per stage, instructions are those of all kernels "
    "together, and registers and shared memory those of the largest.",
)
# Column: opcode and the modifiers it must have.
COLUMNS: dict[str, tuple[str, ...]] = {
    "LDG.64": ("LDG", "64"),
    "LDG.128": ("LDG", "128"),
    "LDGSTS": ("LDGSTS",),
    "CCTL": ("CCTL",),
    "LDS": ("LDS",),
    "SHFL": ("SHFL",),
    "BAR": ("BAR",),
    "MEMBAR": ("MEMBAR",),
    "ATOMG": ("ATOMG",),
    "RED": ("RED",),
    "FFMA": ("FFMA",),
}
LARGEST = 4  # changes that are named


@dataclass(frozen=True)
class Made:
    """One stack on one arch: all kernels of its text together."""

    registers: int
    spill_bytes: int
    shared: int
    histogram: Counter[str]

    @classmethod
    def of(cls, kernels: list[Resources]) -> "Made":
        total: Counter[str] = Counter()
        for kernel in kernels:
            total.update(kernel.histogram)
        return cls(
            max(kernel.registers for kernel in kernels),
            sum(kernel.spill_bytes for kernel in kernels),
            max(kernel.shared for kernel in kernels),
            total,
        )

    def count(self, opcode: str, *modifiers: str) -> int:
        """Instructions that are `opcode` with at least these modifiers."""
        parts = ((name.split("."), number) for name, number in self.histogram.items())
        return sum(number for (first, *rest), number in parts if first == opcode and set(modifiers) <= set(rest))


def ask(inquiry: Inquiry) -> Outcome:
    """A row for each variant and arch that can run it. Needs NVRTC and NVIDIA's binary tools, no GPU."""
    catalog, archs = read_catalog(), inquiry.config.archs
    if not archs:
        raise LabError("archs=[] leaves nothing to read", "name one, such as archs=[sm_90]")
    known = [*catalog.variants, *catalog.stacks]
    made: dict[str, dict[str, Made]] = {}  # by the sha of the text: parents come up again and again
    rows = []
    for name in inquiry.options.texts("variants") or known:
        stack = inquiry.stack(name)
        source = _source(inquiry, stack.variants, stack)
        parent = _source(inquiry, stack.parent, stack)
        for each in (source, parent):
            if each.sha not in made:
                inquiry.show.begin(f"read {each.name}")
                made[each.sha] = _make(inquiry, each, archs)
        rows += [_row(stack, arch, found, made[parent.sha].get(arch)) for arch, found in made[source.sha].items()]
    return Outcome("sass", QUESTION, pd.DataFrame(rows), COUNTED, NOTES, keys=2)


def difference(own: Counter[str], parent: Counter[str]) -> list[tuple[str, int]]:
    """(opcode, how many more than the parent has), the largest difference first; equal ones are left out."""
    changes = {name: own[name] - parent[name] for name in {*own, *parent} if own[name] != parent[name]}
    return sorted(changes.items(), key=lambda change: (-abs(change[1]), change[0]))


def _source(inquiry: Inquiry, variants: tuple[str, ...], stack: Stack) -> Source:
    known = read_catalog().variants
    return build([known[name] for name in variants], inquiry.model, inquiry.config.threads, stack.knobs)


def _make(inquiry: Inquiry, source: Source, archs: tuple[str, ...]) -> dict[str, Made]:
    cache = inquiry.config.cache
    able = [arch for arch in archs if int(arch.removeprefix("sm_")) >= source.min_arch]
    cubins = compile_all(source.text, able, source.name, cache / "cubins")
    kernels = [f"stage_{stage}" for stage in STAGES] if source.by_stage else ["decode"]
    return {
        arch: Made.of([resources(cubin, arch, kernel, cache / "sass") for kernel in kernels])
        for arch, cubin in cubins.items()
    }


def _row(stack: Stack, arch: str, found: Made, parent: Made | None) -> dict[str, Any]:
    changes = difference(found.histogram, parent.histogram)[:LARGEST] if parent else []
    return {
        "variant": stack.name,
        "arch": arch,
        "parent": title(stack.parent),
        "registers": found.registers,
        "spill B": found.spill_bytes,
        "shared B": found.shared,
        "instructions": found.histogram.total(),
        "more than parent": found.histogram.total() - parent.histogram.total() if parent else None,
        **{head: found.count(*wanted) for head, wanted in COLUMNS.items()},
        "change": ", ".join(f"{number:+d} {name}" for name, number in changes),
    }
