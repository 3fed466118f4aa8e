"""Reproduction of a record: build its source again and compare every hash: `reproduce=<record id>`."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from common.compile.source import build
from common.config.resolve import FORMATS, SYNTHETIC, model_named
from common.config.run_config import RunConfig
from common.errors import LabError
from common.json_values import from_json, to_json
from common.model.shapes import Model
from common.record.provenance import provenance
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, check_stack, knob_values, knob_words
from experiments.tables.find import find
from experiments.tables.progress import Quiet

VERSIONS = ("lab", "python", "torch", "cupy", "numpy", "nvrtc")  # fields of the provenance: printed, but not compared


def reproduce(name: str, config: RunConfig) -> int:
    """Print a line for each hash and option of the record `name`, then and now. Returns 0 when all are equal, else 1.

    Source, knobs, weights, device and compiler are compared. The commit and the libraries' versions are only printed.
    Raises LabError when there is no such record of a run, or it cannot be built here.
    """
    row = find(name, config.results)
    if row.get("kind") != "run":
        raise LabError(f"{row['id']} is a record of kind {row.get('kind')}", "give the id of a run")
    then, now, again = recorded(row), rebuilt(config, row), command(row)
    width = max(map(len, then))
    for name, value in then.items():
        mark = "same  " if value == now[name] else "DIFFERS"
        print(f"{mark:7} {name:{width}}  {value}" + ("" if value == now[name] else f"  now {now[name]}"))
    for name, (old, new) in _versions(row).items():
        if old != new:
            print(f"(other) {name:{width}}  {old}  now {new}")
    differing = [name for name, value in then.items() if value != now[name]]
    print(f"differs: {', '.join(differing)}" if differing else f"equal; run it with: {again}")
    return int(bool(differing))


def recorded(row: Mapping[str, Any]) -> dict[str, Any]:
    """The hashes and names that identify a record's inputs."""
    return {
        "source": row["source_sha"],
        "weights": row["weights"]["sha"],
        "device": row["device"].get("gpu", row["device"]["device"]),
        "compiler": row["device"]["compiler"],
        "key": row["key"],
    }


def rebuilt(config: RunConfig, row: Mapping[str, Any]) -> dict[str, Any]:
    """`recorded` of a build with the record's stack, knobs, model, block size and seed on the device of `config`."""
    from experiments.run.describe import origin_of
    from experiments.run.setup import Setup

    _check_known(row)
    model, stack = from_json(Model, row["model"]), stack_of(row)
    synthetic = row["weights"]["source"].startswith(SYNTHETIC)
    weights = SYNTHETIC if synthetic else config.weights
    if not synthetic and weights == SYNTHETIC:
        raise LabError(f"the record's weights are {row['weights']['source']}", "give their location with weights=PATH")
    same = {"seed": row["seed"], "threads": row["threads"], "model": model, "positions": model.positions}
    same["formats"] = tuple(getattr(model, key) for key in FORMATS)
    setup = Setup(replace(config, **same, weights=weights, timing=None), Quiet())
    sha = setup.source(stack).sha
    return recorded(origin_of(setup, to_json(setup.device.describe()), stack, sha) | {"source_sha": sha})


def stack_of(row: Mapping[str, Any]) -> Stack:
    """The stack of a record. Raises LabError when one of its variants no longer exists."""
    for name in (*row["stack"], *row["parent"]):
        if name not in read_catalog().variants:
            raise LabError(f"the record's variant {name} no longer exists", "check out the commit of the record")
    return from_json(Stack, dict(row) | {"name": row["variant"], "variants": row["stack"]})


def source_now(row: Mapping[str, Any]) -> str:
    """The sha256 of the text that the record's stack gives today. Raises LabError when it gives none."""
    stack, known = stack_of(row), read_catalog().variants
    variants, model = [known[name] for name in stack.variants], from_json(Model, row["model"])
    return build(variants, model, row["threads"], stack.knobs).sha


def _check_known(row: Mapping[str, Any]) -> None:
    """Raise LabError where a variant of the record no longer exists, or a knob of one, or one has a new knob."""
    catalog = read_catalog()
    for name in check_stack(row["stack"], catalog):
        then = row["knobs"].get(name)
        knobs = catalog.variants[name].knobs
        try:
            now = {constant for knob in knobs for constant in knob.constants(knob.value(then), row["threads"])}
        except (KeyError, TypeError):
            now = None
        if now != set(then or {}):
            raise LabError(f"the knobs of {name} were {then}, and are others by now", "check out the record's commit")


def command(row: Mapping[str, Any]) -> str:
    """The command that runs the record's stack again; its timing options are left out."""
    catalog = read_catalog()
    named = row["variant"] in {*catalog.variants, *catalog.stacks}
    words = [f"variant={row['variant']}" if named else f"stack=[{','.join(row['stack']) or 'baseline'}]"]
    synthetic = row["weights"]["source"].startswith(SYNTHETIC)
    model = from_json(Model, row["model"])
    words += [f"model={model.shape}" if synthetic else "weights=PATH"]
    usual = _usual(model.shape) if synthetic else row["model"]
    words += [
        f"model.{name}={value}"
        for name, value in row["model"].items()
        if name not in ("name", *FORMATS) and value != usual.get(name)
    ]
    words += [f"{key}={getattr(model, key)}" for key in FORMATS if getattr(model, key) != "bf16"]
    request = row.get("asked") or {}
    words += [f"blocks={request['blocks']}"] if request.get("blocks") else []
    given = {name: value for name, value in request.get("validation", {}).items() if value is not None}
    words += [f"validate.{name}={str(value).lower()}" for name, value in given.items()]
    device = row["device"]
    words += [f"{name}={row[name]}" for name in ("seed", "threads")] + [f"device={device['device']}"]
    if device["device"] == "ptx":
        words += [f"device.arch={device['target']}", f"device.races={str(device['races']).lower()}"]
    for values in knob_values(catalog, row["stack"], row["knobs"]).values():
        words += [word for word in knob_words(values) if word not in words]
    return shlex.join(["python", "-m", "experiments", *words])


def _usual(name: str) -> Mapping[str, Any]:
    """The fields of a model as its yaml has them today."""
    try:
        return to_json(model_named(name))
    except FileNotFoundError:
        raise LabError(f"conf/model/{name}.yaml no longer exists", "check out the commit of the record") from None


def _versions(row: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The commit and the versions: (in the record, now)."""
    both = row["provenance"], to_json(provenance())
    commits = ((each.get("git") or {}).get("commit") for each in both)
    return {"commit": tuple(commits)} | {name: tuple(each.get(name) for each in both) for name in VERSIONS}
