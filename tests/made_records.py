"""Hand-made records, in the form that runs and experiments write."""

from common.display.table import Table, cell
from common.stacks.catalog import read_catalog
from experiments.report.evidence import Evidence

MODEL = {
    "name": "tiny", "hidden": 64, "intermediate": 160, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32,
    "vocab": 503, "positions": 64, "rope_theta": 1e6, "rms_eps": 1e-6, "tied": True,
}  # fmt: skip
ORIGIN = {"git": {"commit": "a" * 40, "dirty": False}, "cpu": "a processor", "gpu": None, "command": "python -m x <y>"}


def run(variant: str, stack: list[str], barriers: int, when: int = 0, **more) -> dict:
    """A record of kind `run`, by hand: 1,000 bytes of weights in 64-bit loads, `barriers` grid barriers."""
    counts = {"qkv": {"grid_barriers": barriers, "weights_64bit": 1000, "activations_32bit": 40}}
    sm_90 = {
        "arch": "sm_90",
        "kernel": "decode",
        "registers": 40 + barriers,
        "spill_bytes": 0,
        "stack": 0,
        "local": 0,
        "shared": 512,
        "histogram": {"BAR.SYNC": barriers, "FFMA": 9},
    }
    return {
        "id": f"run-{variant}-{when:04}", "kind": "run", "time": f"2026-01-01T00:00:{when:02}+00:00",
        "variant": variant, "stack": stack, "parent": [], "knobs": {name: {} for name in stack},
        "model": MODEL, "threads": 256, "blocks": 8,
        "status": "PASSED", "counts": counts, "resources": {"sm_90": sm_90}, "latencies": [], "source_sha": "0" * 64,
        "device": {"device": "ptx", "target": "sm_90", "races": False, "compiler": "NVRTC 13.0 sm_90"},
        "provenance": ORIGIN, **more,
    }  # fmt: skip


def timed(variant: str, stack: list[str]) -> dict:
    """The same on a GPU: 500 us at position 1, 10 % faster than the parent."""
    pair = {"effect": -0.1, "low": -0.12, "high": -0.09, "verdict": "FASTER"}
    latency = {"position": 1, "seconds": {"median": 5e-4, "low": 4.9e-4, "high": 5.1e-4}, "comparison": pair}
    latency |= {"verdict": "FASTER", "bandwidth": 1e12, "of_ceiling": 0.5}
    latency |= {"stack": stack, "steps": 20, "samples": [5e-4], "bytes_per_step": 5e8}
    device = {"device": "cuda", "gpu": "A GPU", "compiler": "NVRTC 13"}
    return run(variant, stack, 0, 9, counts=None, resources={}, device=device, latencies=[latency])


def result(name: str, basis: str, table: list[dict], when: int = 5) -> dict:
    return {
        "id": f"{name}-{basis}", "kind": name, "time": f"2026-01-01T00:01:{when:02}+00:00", "question": f"why {name}?",
        "basis": basis, "columns": list(table[0]), "table": table, "notes": ["Read it so."], "needs_gpu": "all of it",
        "model": MODEL, "provenance": ORIGIN,
    }  # fmt: skip


def evidence(*records: dict) -> Evidence:
    return Evidence(read_catalog(), records)


UNTIMED = (
    run("baseline", [], 10),
    run("redundant_rmsnorm", ["redundant_rmsnorm"], 99),
    run("redundant_rmsnorm", ["redundant_rmsnorm"], 6, when=1),
)


WORST = {"stage": "attention", "layer": 0, "error": 2e-7, "ratio": 0.125}


def shown_run(variant="warp_split", producers=2, **more) -> dict:
    """A whole record of warp_split, validated on the ptx device: all that the store keeps of a run."""
    knobs = {"warp_split": {"producers": producers, "consumers": 8 - producers}}
    fields = {
        "knobs": knobs,
        "reason": "",
        "report": "",
        "verdict": {"mismatch": None, "worst": WORST, "steps": 21, "seed": 5},
        "weights": {"sha": "w" * 64, "source": "synthetic version 1 seed 5"},
        "seed": 5,
        "generation": None,
        "key": "0123456789abcdef",
        "asked": {
            "validation": {"seeds": 1, "quick": None, "trials": "none"},
            "timing": None,
            "blocks": None,
            "archs": [],
        },
    }
    return run(variant, ["warp_split"], 19, **(fields | more))


def lines(table: Table) -> list[dict]:
    """The rows of a table as {head: value}."""
    heads = [column.head for column in table.columns]
    return [dict(zip(heads, row, strict=True)) for row in table.rows]


def line(table: Table, name: str) -> dict:
    """The line of a table that has `name` in one of its cells."""
    return next(line for line in lines(table) if name in map(cell, line.values()))
