"""Instructions and resources of each variant for each arch, as compiled, and their change against the parent."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from common.compile.nvrtc import version
from common.compile.sass import Resources, inspect
from common.errors import LabError
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
# Opcodes, some with the modifier that they must have.
COLUMNS = ("LDG.64", "LDG.128", "LDGSTS", "CCTL", "LDS", "SHFL", "BAR", "MEMBAR", "ATOMG", "RED", "FFMA")
LARGEST = 4  # changes that are named


def ask(experiment: Experiment) -> ResultTable:
    """A row for each variant and arch that can run it. Needs NVRTC and NVIDIA's binary tools, no GPU."""
    archs = experiment.config.archs
    if not archs:
        raise LabError("archs=[] leaves nothing to read", "name one, such as archs=[sm_90]")
    read: dict[str, dict[str, Resources]] = {}  # by the sha of the text: parents occur many times
    rows: list[dict[str, Any]] = []
    for stack in experiment.chosen():
        work = partial(_by_arch, experiment, stack, read)
        found = experiment.row(label_of(stack), work, on_device=False, stack=stack, archs=archs)
        rows += (found or {}).values()
    return ResultTable("sass", QUESTION, rows, COUNTED, (*NOTES, f"Compiled by NVRTC {version()}."), keys=2)


def _by_arch(experiment: Experiment, stack: Stack, read: dict[str, dict[str, Resources]]) -> dict[str, dict[str, Any]]:
    source, parent = experiment.source(stack), experiment.source(replace(stack, variants=stack.parent))
    for each in (source, parent):
        if each.sha not in read:
            experiment.show.begin(f"read {each.name}")
            read[each.sha] = inspect(each, experiment.config.archs, experiment.config.cache / "cubins")
    return {arch: _row(stack, arch, own, read[parent.sha].get(arch)) for arch, own in read[source.sha].items()}


def difference(own: Mapping[str, int], parent: Mapping[str, int]) -> list[tuple[str, int]]:
    """(opcode, how many more than the parent has), the largest difference first; equal ones are left out."""
    changes = {name: own.get(name, 0) - parent.get(name, 0) for name in {*own, *parent}}
    changes = {name: change for name, change in changes.items() if change}
    return sorted(changes.items(), key=lambda change: (-abs(change[1]), change[0]))


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
        **{head: own.count(*head.split(".")) for head in COLUMNS},
        "change": ", ".join(f"{number:+d} {name}" for name, number in changes),
    }
