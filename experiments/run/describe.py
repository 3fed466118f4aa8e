"""Record of a run: the findings on a stack, and their conditions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.cache.sources import sources_sha
from common.compile.sass import Resources
from common.config.run_config import RunConfig
from common.devices.counters import Counts
from common.json_values import to_json
from common.record.measurement import Measurement
from common.record.provenance import provenance
from common.record.store import key
from common.stacks.stack import Stack
from common.validate.verdict import Verdict
from experiments.run.setup import Setup


@dataclass
class Findings:
    """Findings of the steps on one stack so far.

    status     empty until validation or an error decides it; `reason` says in one line why it is not PASSED
    proof      id of the record that has validated the same kernel, where this one did not
    report     of a compiler or of a stuck launch, many lines
    blocks     of the grid; counts: of one step at position 1; resources: by arch
    latencies  one for each position; generation: of many tokens from position 0 on
    seconds    spent in each part, without the parts inside it: compile, inspect, validate, trials, reference, measure
    """

    status: str = ""
    reason: str = ""
    report: str = ""
    source_sha: str = ""
    proof: str = ""
    blocks: int | None = None
    verdict: Verdict | None = None
    counts: Counts | None = None
    resources: dict[str, Resources] = field(default_factory=dict)
    latencies: tuple[Measurement, ...] = ()
    generation: Measurement | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        return {"kind": "run", **vars(self), "counts": self.counts and self.counts.by_stage}


def keep(setup: Setup, device: Mapping[str, Any], stack: Stack, found: Mapping[str, Any]) -> dict[str, Any]:
    """Write a record: the findings on a stack, and their conditions. Returns its row.

    device: as `Device.describe` gives it.
    """
    origin = origin_of(setup, device, stack, found["source_sha"])
    record = {**origin, "provenance": provenance(device.get("bus_id")), **found}
    return to_json(record) | {"id": setup.store.append(record)}


def origin_of(setup: Setup, device: Mapping[str, Any], stack: Stack, source_sha: str) -> dict[str, Any]:
    """Fields of a record that are known before the run."""
    config, packed = setup.config, setup.packed
    kind = device.get("gpu", device["device"])  # GPUs of one name are one device
    return {
        "key": key(source_sha, stack.knobs, setup.model, packed.sha, kind, device["compiler"]),
        "variant": stack.name,
        "stack": stack.variants,
        "parent": stack.parent,
        "knobs": stack.knobs,
        "model": setup.model,
        "weights": {"sha": packed.sha, "source": Path(packed.source).name},
        "device": device,
        "threads": config.threads,
        "asked": request_of(config),
        "seed": config.seed,
        "validator": sources_sha("common/validate/*.py"),
    }


def identity(row: Mapping[str, Any]) -> str:
    """Everything that decides the result of a run: its key, its parent, and its request with all options.

    A stack has an effect against each of its parents, and a time at each position; none stands for another.
    """
    return json.dumps([row["key"], row["parent"], row.get("asked")], sort_keys=True)


def proof_of(row: Mapping[str, Any]) -> str:
    """Everything that decides the verdict of a run's validation against the reference: nothing of how it is timed.

    A verdict of another validator's code, which may have had fewer trials, proves nothing.
    """
    settings = {name: value for name, value in (row.get("asked") or {}).items() if name not in ("timing", "archs")}
    return json.dumps([row["key"], row["seed"], row.get("validator"), settings], sort_keys=True)


def request_of(config: RunConfig) -> dict[str, Any]:
    """Request beyond the key and the parent; the positions that are timed are in `timing`."""
    return {name: getattr(config, name) for name in ("validation", "timing", "blocks", "archs")}
