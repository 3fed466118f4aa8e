"""Instructions and resources of each variant for each arch, as compiled, and their change against the parent."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from common.compile.nvrtc import version
from common.compile.sass import BUILD, Resources, inspect
from common.compile.source import Source, build
from common.errors import LabError
from common.record.provenance import provenance
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, title
from experiments.experiment import Experiment
from experiments.tables.result_table import COUNTED, ResultTable
from experiments.tables.row import label_of

QUESTION = "which instructions and registers each variant compiles to, and what changes against its parent"
NOTES = (
    "Instructions as they are in the code, each once; a loop runs them many times. `change` names the largest "
    "differences from the parent. A variant with a kernel per stage has the instructions of all kernels "
    "together, and registers and shared memory of the largest.",
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


def ask(experiment: Experiment) -> ResultTable:
    """A row for each variant and arch that can run it. Needs NVRTC and NVIDIA's binary tools, no GPU.

    Each text that is compiled also leaves a record of kind BUILD, which the report's resources come from.
    """
    archs = experiment.config.archs
    if not archs:
        raise LabError("archs=[] leaves nothing to read", "name one, such as archs=[sm_90]")
    read: dict[str, dict[str, Resources]] = {}  # by the sha of the text: parents occur many times
    rows: list[dict[str, Any]] = []
    for stack in experiment.stacks(experiment.options.texts("variants")):
        rows += experiment.attempt(label_of(stack), partial(_rows, experiment, stack, read)) or []
    notes = (*NOTES, f"Compiled by NVRTC {version()}.")
    return ResultTable("sass", QUESTION, rows, COUNTED, notes, keys=2)


def _rows(experiment: Experiment, stack: Stack, read: dict[str, dict[str, Resources]]) -> list[dict[str, Any]]:
    source = _source(experiment, stack.variants, stack)
    parent = _source(experiment, stack.parent, stack)
    for each in (source, parent):
        if each.sha not in read:
            experiment.show.begin(f"read {each.name}")
            read[each.sha] = inspect(each, experiment.config.archs, experiment.config.cache / "cubins")
            facts = {"kind": BUILD, **each.facts(), "resources": read[each.sha], "provenance": provenance()}
            experiment.store.append(facts)
    return [_row(stack, arch, own, read[parent.sha].get(arch)) for arch, own in read[source.sha].items()]


def difference(own: Mapping[str, int], parent: Mapping[str, int]) -> list[tuple[str, int]]:
    """(opcode, how many more than the parent has), the largest difference first; equal ones are left out."""
    changes = {name: own.get(name, 0) - parent.get(name, 0) for name in {*own, *parent}}
    changes = {name: change for name, change in changes.items() if change}
    return sorted(changes.items(), key=lambda change: (-abs(change[1]), change[0]))


def _source(experiment: Experiment, variants: tuple[str, ...], stack: Stack) -> Source:
    catalog = read_catalog().variants
    return build([catalog[name] for name in variants], experiment.model, experiment.config.threads, stack.knobs)


def _row(stack: Stack, arch: str, own: Resources, parent: Resources | None) -> dict[str, Any]:
    instructions, before = (sum(each.histogram.values()) if each else 0 for each in (own, parent))
    changes = difference(own.histogram, parent.histogram)[:LARGEST] if parent else []
    return {
        "variant": label_of(stack),
        "arch": arch,
        "parent": title(stack.parent),
        "registers": own.registers,
        "spill B": own.spill_bytes,
        "shared B": own.shared,
        "instructions": instructions,
        "more than parent": instructions - before if parent else None,
        **{head: own.count(*words) for head, words in COLUMNS.items()},
        "change": ", ".join(f"{number:+d} {name}" for name, number in changes),
    }
