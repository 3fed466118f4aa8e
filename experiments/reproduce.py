"""Build again what a record was made from, and say which part is another one by now: `reproduce=<record id>`."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from common.catalog import read_catalog
from common.config import RunConfig
from common.errors import LabError
from common.model import Model
from common.plain import plain, restore
from common.provenance import provenance
from common.records import Store
from common.stack import Stack

SYNTHETIC = "synthetic"
ABOUT = ("lab", "python", "torch", "cupy", "numpy", "nvrtc")  # of the provenance: told, but no part of the result


def reproduce(config: RunConfig) -> int:
    """Print a line for each hash and option of the record, as it was and as it is; 0 when all are equal, else 1.

    Source, knobs, weights, device and compiler count; the commit and the libraries' versions are told beside them.
    Raises LabError when there is no such record, or it cannot be built here.
    """
    row = find(config)
    then, now = before(row), after(config, row)
    width = max(map(len, then))
    for name, value in then.items():
        mark = "same  " if value == now[name] else "DIFFERS"
        print(f"{mark:7} {name:{width}}  {value}" + ("" if value == now[name] else f"  now {now[name]}"))
    for name, (old, new) in _beside(row).items():
        if old != new:
            print(f"(other) {name:{width}}  {old}  now {new}")
    differing = [name for name, value in then.items() if value != now[name]]
    print(f"differs: {', '.join(differing)}" if differing else f"equal; run it with: {command(row)}")
    return int(bool(differing))


def find(config: RunConfig) -> Mapping[str, Any]:
    """The record that `config` asks for, in the results or in the committed evidence."""
    from common.provenance import EVIDENCE, ROOT

    for path in (config.results, *sorted((ROOT / EVIDENCE).glob("*.jsonl"))):
        for row in Store(path).rows():
            if row["id"] == config.reproduce and row.get("kind") == "run":
                return row
    raise LabError(f"{config.results} has no run with the id {config.reproduce}", "give the file with results=FILE")


def before(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the record was made from."""
    return {
        "source": row["source_sha"],
        "weights": row["weights"]["sha"],
        "device": row["device"].get("gpu", row["device"]["device"]),
        "compiler": row["device"]["compiler"],
        "key": row["key"],
    }


def after(config: RunConfig, row: Mapping[str, Any]) -> dict[str, Any]:
    """The same, built again with the record's stack, knobs, model, block size and seed on the device of `config`."""
    from experiments.run import key_of, open_device, source_text, weights_of

    model = restore(Model, row["model"])
    stack = restore(Stack, row | {"name": row["variant"], "variants": row["stack"]})
    made = row["weights"]["source"].startswith(SYNTHETIC)
    weights = SYNTHETIC if made else config.weights
    if not made and weights == SYNTHETIC:
        raise LabError(f"the record's weights are {row['weights']['source']}", "say where they are: weights=PATH")
    same = replace(config, seed=row["seed"], model=model, positions=model.positions, weights=weights, timing=None)
    _, _, packed = weights_of(same)
    device = open_device(same).describe()
    source = source_text(stack.variants, stack, model, row["threads"])
    found = {"source_sha": source.sha, "weights": {"sha": packed.sha}, "device": plain(device)}
    return before(found | {"key": key_of(source.sha, stack, model, packed, device)})


def command(row: Mapping[str, Any]) -> str:
    """The command that makes the record again, except for what was asked of its timing."""
    catalog = read_catalog()
    named = row["variant"] in {*catalog.variants, *catalog.stacks}
    words = [f"variant={row['variant']}" if named else f"stack=[{','.join(row['stack']) or 'baseline'}]"]
    made = row["weights"]["source"].startswith(SYNTHETIC)
    words += [f"model={row['model']['name']}" if made else "weights=PATH"]
    words += [f"{name}={row[name]}" for name in ("seed", "threads")] + [f"device={row['device']['device']}"]
    for variant in row["stack"]:
        for knob in catalog.variants[variant].knobs:
            value = knob.value(row["knobs"][variant])
            words.append(f"{knob.name}={value}".replace("'", "").replace(" ", ""))
    return shlex.join(["python", "-m", "experiments", *words])


def _beside(row: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    old, new = row["provenance"], plain(provenance())
    versions = {name: (old.get(name), new.get(name)) for name in ABOUT}
    return {"commit": tuple((found.get("git") or {}).get("commit") for found in (old, new))} | versions
