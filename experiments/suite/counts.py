"""Exact counts of one decode step: barriers, bytes by the width of the load, prefetches; the same on every machine.

Estimates are made from its records; Qwen3-0.6B's are committed. With options.instructions=true: the instructions
that NVRTC made of the step, by class, and the bytes that they move.
"""

from collections import Counter
from collections.abc import Mapping

from common.compile.target import number
from common.devices.counters import Counts
from common.devices.ptx.counted import ALL_CLASSES
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.model.stages import STAGES
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.run.counting import GRID
from experiments.tables.result_table import COUNTED, ResultTable


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack."""
    if experiment.options.flag("instructions"):
        return _instructions(experiment)
    rows = experiment.rows(_chosen(experiment), lambda stack: _count(experiment, stack).columns())
    question = f"what one step of {experiment.model.name} does at position 1 on a grid of {GRID} blocks"
    note = "Every row of a matrix loads the activations again, from L1 or L2; weights and KV cache come from memory."
    return ResultTable("counts", question, rows, COUNTED, [note])


def _count(experiment: Experiment, stack: Stack) -> Counts:
    """Counts of the stack; they are kept as a record, and so are the parent's."""
    counting = experiment.counting
    counting.count(counting.source(stack.parent, stack.knobs))
    return counting.count(counting.source(stack.variants, stack.knobs))


def _chosen(experiment: Experiment) -> list[Stack]:
    """Names in `options.variants`, else the run's stacks with their knobs; where that is every variant, all names."""
    catalog, stacks = read_catalog(), experiment.chosen
    whole = not experiment.options.texts("variants") and {stack.name for stack in stacks} >= set(catalog.variants)
    return [*stacks, *map(experiment.stack, catalog.stacks if whole else ())]


def _instructions(experiment: Experiment) -> ResultTable:
    """A row for each stack; if there is only one, also a row for each of its stages."""
    if not experiment.config.ptx:
        raise LabError("options.instructions counts what a CPU executes of the PTX", "give device=ptx")
    arch = experiment.config.ptx.arch
    device = PtxDevice(experiment.config.cache / "kernels", number(arch))
    stacks, by_stage = _chosen(experiment), dict[str, Counter[str]]()

    def executed(stack: Stack) -> Mapping[str, float]:
        source = experiment.counting.source(stack.variants, stack.knobs)
        with experiment.counting.step(device, source, GRID * source.blocks_per_sm) as session:
            session.count()
            by_stage.update(session.executed)
            return _columns(sum(session.executed.values(), Counter()))

    rows = experiment.rows(stacks, executed)
    if len(stacks) == 1 and rows:
        named = ((stage or "none", by_stage[stage]) for stage in (*STAGES, "") if stage in by_stage)
        rows = [{"variant": rows[0]["variant"], "stage": "all", **rows[0]}] + [
            {"variant": rows[0]["variant"], "stage": name, **_columns(counts)} for name, counts in named
        ]
    question = (
        f"what one step of {experiment.model.name} executes of the PTX for {arch}, at position 1 on {GRID} blocks"
    )
    notes = [
        "Instructions are counted by thread, without moves of a register that nothing changes. Copies are counted by "
        "their bytes; a KB is one of weights and cache. A loader warp belongs to no stage.",
    ]
    return ResultTable("instructions", question, rows, COUNTED, notes, keys=2 if len(stacks) == 1 else 1)


def _columns(counts: Counter[str]) -> dict[str, float]:
    """Instructions and bytes of the fields of `common.devices.ptx.counted`."""
    total = sum(counts[kind] for kind in ALL_CLASSES)
    moved = {data: sum(counts[field] for field in counts if field.startswith(f"{data}_")) for data in ("weights", "kv")}
    copied = counts["copied_async"] + counts["copied_bulk"]
    read = sum(moved.values()) + copied
    return {
        "M instructions": total / 1e6,
        "a KB": 1e3 * total / read if read else float("nan"),
        **{f"M {kind}": counts[kind] / 1e6 for kind in ALL_CLASSES},
        "weights MB": moved["weights"] / 1e6,
        "KV MB": moved["kv"] / 1e6,
        "copied MB": copied / 1e6,
        "stored MB": sum(counts[field] for field in counts if field.startswith("stored_")) / 1e6,
    }
