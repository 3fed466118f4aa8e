"""`variant=best`: the stack that a search found for this GPU, else the fastest in its committed records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.config.device_choice import find_gpu
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import Catalog
from common.stacks.stack import check_stack, choose_stacks
from common.stacks.variant import NamedStack

# Only latencies of one model at one position are comparable. Published figures use this model and position.
MODEL, POSITION = "qwen3_0_6b", 1
STABLE = (None, "FASTER", "SAME", "SLOWER")  # verdicts whose confidence interval is narrow enough


def fastest_stack(catalog: Catalog, threads: int) -> NamedStack | None:
    """The tuned stack of this GPU, else its fastest recorded one that can still be composed; None without either.

    threads: per block; only records of this block size count, because knobs such as a ratio of warps depend on it.
    """
    try:
        gpu = find_gpu()
        for stack in catalog.tuned.values():
            if stack.tuned == tuned_for(gpu, MODEL, POSITION, threads):
                return stack
        records = measured_on(gpu, catalog.root / "experiments" / "results", threads)
    except LabError:
        return None
    for record in (record for record in records if _as_asked(record, catalog)):
        try:
            names, parent = (check_stack(record[key], catalog) for key in ("stack", "parent"))
            knobs = [(knob, record["knobs"][one]) for one in names for knob in catalog.variants[one].knobs]
            values = {knob.name: knob.value(constants) for knob, constants in knobs}
        except (LabError, KeyError):  # a variant or one of its knobs no longer exists
            continue
        return NamedStack(record["variant"], "", names, parent, values, "")
    return None


def tuned_for(gpu: str, model: str, position: int, threads: int) -> dict[str, Any]:
    """The `tuned` section of the yaml of a stack that a search found."""
    return {"gpu": gpu, "model": model, "position": position, "threads": threads}


def _as_asked(record: Mapping[str, Any], catalog: Catalog) -> bool:
    """True if a record is of the stack that its name stands for, beside that one's own parent.

    A leave-one-out, such as `megaqwen - vec128`, is the same kernel beside another parent, under a name of its own.
    """
    name, stack, parent = record["variant"], tuple(record["stack"]), tuple(record["parent"])
    known = name in {*catalog.variants, *catalog.stacks, *catalog.tuned}
    try:
        (own,) = choose_stacks(catalog, name, None if known else stack, {}, record["threads"])
    except LabError:
        return False
    return (own.name, own.variants, own.parent) == (name, stack, parent)


def measured_on(gpu: str, results: Path, threads: int) -> list[dict[str, Any]]:
    """Records in `results`/*.jsonl that passed validation on `gpu` and have a stable latency, fastest first.

    gpu: the name that CUDA reports. threads: per block. Only those of one size of the KV cache, with which most stacks
    were timed: other sizes give other latencies. Raises LabError for a file that cannot be read.
    """
    timed = []
    for record in (record for path in sorted(results.glob("*.jsonl")) for record in Store(path).records()):
        passed = record.get("kind") == "run" and record.get("status") == "PASSED"
        if not passed or record.get("threads") != threads:
            continue
        if record["device"].get("gpu") == gpu and record["model"]["name"] == MODEL:
            timed += [
                (latency["seconds"]["median"], record)
                for latency in record.get("latencies") or ()
                if latency["position"] == POSITION and latency["verdict"] in STABLE
            ]
    same = _most_compared([record for _, record in timed])
    return [record for _, record in sorted(timed, key=lambda pair: pair[0]) if record["model"] == same]


def _most_compared(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The shape, with its cache, of which most stacks have a record; of several the last."""
    stacks: dict[str, set[str]] = {}
    for record in records:
        stacks.setdefault(json.dumps(record["model"]), set()).add(json.dumps(record["stack"]))
    most = max(map(len, stacks.values()), default=0)
    return next((json.loads(shape) for shape in reversed(stacks) if len(stacks[shape]) == most), None)
