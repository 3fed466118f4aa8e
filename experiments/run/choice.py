"""Choices that records make for a run: `variant=best`, and the seed of a run that resumes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from common import ROOT
from common.config.device_choice import find_gpu
from common.config.resolve import resolve
from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.shapes import Model
from common.record.provenance import EVIDENCE
from common.record.record import RunRecord
from common.record.store import Store
from common.stacks.catalog import Catalog
from common.stacks.stack import check_stack, choose_stacks
from common.stacks.variant import NamedStack

# Only latencies of one model at one position are comparable. Published figures use this model and position.
MODEL, POSITION = "qwen3_0_6b", 1
STABLE = (None, "FASTER", "SAME", "SLOWER")  # verdicts with a narrow enough confidence interval


def run_config(cfg: DictConfig, root: Path = ROOT) -> RunConfig:
    """`resolve`, with the choices of the records below `root` and in `results`."""
    return resolve(cfg, root, fastest_stack, last_seed)


def last_seed(results: Path) -> int | None:
    """The seed of the last run in a file of records; None if it has no run."""
    runs = Store(results).read(RunRecord)
    return runs[-1].seed if runs else None


def fastest_stack(catalog: Catalog, threads: int) -> NamedStack | None:
    """The tuned stack of this GPU, else its fastest recorded one that can still be composed; None without either.

    threads: per block; only records of this block size count, because knobs such as a ratio of warps depend on it.
    """
    try:
        gpu = find_gpu()
        for stack in catalog.tuned.values():
            if stack.tuned == tuned_for(gpu, MODEL, POSITION, threads):
                return stack
        records = measured_on(gpu, catalog.root / EVIDENCE, threads)
    except LabError:
        return None
    for record in (record for record in records if _has_its_own_parent(record, catalog)):
        try:
            names, parent = (check_stack(names, catalog) for names in (record.stack, record.parent))
            knobs = [(knob, record.knobs[one]) for one in names for knob in catalog.variants[one].knobs]
            values = {knob.name: knob.value(constants) for knob, constants in knobs}
        except (LabError, KeyError):  # a variant or one of its knobs no longer exists
            continue
        return NamedStack(record.variant, "", names, parent, values, "")
    return None


def tuned_for(gpu: str, model: str, position: int, threads: int) -> dict[str, Any]:
    """The `tuned` section of the yaml of a stack that a search found."""
    return {"gpu": gpu, "model": model, "position": position, "threads": threads}


def _has_its_own_parent(record: RunRecord, catalog: Catalog) -> bool:
    """True if a record is of the stack that its name stands for, beside that one's own parent.

    A leave-one-out, such as `megaqwen - vec128`, is the same kernel beside another parent, under a name of its own.
    """
    known = record.variant in {*catalog.variants, *catalog.stacks, *catalog.tuned}
    try:
        (own,) = choose_stacks(catalog, record.variant, None if known else record.stack, {}, record.threads)
    except LabError:
        return False
    return (own.name, own.variants, own.parent) == (record.variant, record.stack, record.parent)


def measured_on(gpu: str, results: Path, threads: int) -> list[RunRecord]:
    """Records in `results`/*.jsonl that passed validation on `gpu` and have a stable latency, fastest first.

    gpu: the name that CUDA reports. threads: per block. Only records with the KV cache size of most timed stacks:
    other sizes give other latencies. Raises LabError for a file that cannot be read.
    """
    timed = [
        (latency.seconds.median, record)
        for path in sorted(results.glob("*.jsonl"))
        for record in Store(path).read(RunRecord)
        if record.passed and record.threads == threads and (record.device.gpu, record.model.name) == (gpu, MODEL)
        for latency in record.latencies
        if latency.position == POSITION and latency.verdict in STABLE
    ]
    model = _most_compared([record for _, record in timed])
    return [record for _, record in sorted(timed, key=lambda pair: pair[0]) if record.model == model]


def _most_compared(records: Sequence[RunRecord]) -> Model | None:
    """The model, with its cache size, that most stacks have a record of; of several the last."""
    stacks: dict[Model, set[tuple[str, ...]]] = {}
    for record in records:
        stacks.setdefault(record.model, set()).add(record.stack)
    most = max(map(len, stacks.values()), default=0)
    return next((model for model in reversed(stacks) if len(stacks[model]) == most), None)
