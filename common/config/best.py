"""`variant=best`: the fastest stack in the committed records of this GPU."""

from pathlib import Path
from typing import Any

from common.config.device_choice import find_gpu
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import Catalog, NamedStack
from common.stacks.stack import check_stack

# Only latencies of one model at one position are comparable. Published figures use this model and position.
MODEL, POSITION = "qwen3_0_6b", 1
STABLE = (None, "FASTER", "SAME", "SLOWER")  # verdicts whose confidence interval is narrow enough


def fastest_stack(catalog: Catalog, threads: int) -> NamedStack | None:
    """The fastest recorded stack of this GPU that can still be composed; None without a GPU or a record of it.

    threads: per block; only records of this block size count, because knobs such as a ratio of warps depend on it.
    """
    try:
        records = measured_on(find_gpu(), catalog.root / "experiments" / "results", threads)
    except LabError:
        return None
    for record in records:
        try:
            names, parent = (check_stack(record[key], catalog) for key in ("stack", "parent"))
            knobs = [(knob, record["knobs"][one]) for one in names for knob in catalog.variants[one].knobs]
            values = {knob.name: knob.value(constants) for knob, constants in knobs}
        except (LabError, KeyError):  # a variant or one of its knobs no longer exists
            continue
        return NamedStack(record["variant"], "", names, parent, values, "")
    return None


def measured_on(gpu: str, results: Path, threads: int) -> list[dict[str, Any]]:
    """Records in `results`/*.jsonl that passed validation on `gpu` and have a stable latency, fastest first.

    gpu: the name that CUDA reports. threads: per block. Raises LabError for a file that cannot be read.
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
    return [record for _, record in sorted(timed, key=lambda pair: pair[0])]
