"""Reproduction of a record: its source as it is today, and the command that runs its stack again."""

import shlex
from collections.abc import Mapping
from typing import Any

from common.compile.source import build
from common.config.resolve import FORMATS, SYNTHETIC, model_named
from common.errors import LabError
from common.json_values import from_json, to_json
from common.model.shapes import Model
from common.stacks.catalog import read_catalog
from common.stacks.stack import knob_values, knob_words


def source_now(row: Mapping[str, Any]) -> str:
    """The sha256 of the text that the record's stack gives today. Raises LabError when it gives none."""
    known = read_catalog().variants
    for name in row["stack"]:
        if name not in known:
            raise LabError(f"the record's variant {name} no longer exists", "check out the commit of the record")
    model = from_json(Model, row["model"])
    return build([known[name] for name in row["stack"]], model, row["threads"], row["knobs"]).sha


def command(row: Mapping[str, Any]) -> str:
    """The command that runs the record's stack again; its timing options are left out."""
    catalog = read_catalog()
    named = row["variant"] in {*catalog.variants, *catalog.stacks}
    words = [f"variant={row['variant']}" if named else f"stack=[{','.join(row['stack']) or 'baseline'}]"]
    synthetic = row["weights"]["source"].startswith(SYNTHETIC)
    model = from_json(Model, row["model"])
    words += [f"model={model.shape}" if synthetic else "weights=PATH"]
    usual = to_json(model_named(model.shape)) if synthetic else {**row["model"], "positions": None}
    words += [
        f"model.{name}={value}"
        for name, value in row["model"].items()
        if name not in ("name", *FORMATS) and value != usual.get(name)
    ]
    words += [f"{key}={getattr(model, key)}" for key in FORMATS if getattr(model, key) != "bf16"]
    request = row.get("asked") or {}
    words += [f"blocks={request['blocks']}"] if request.get("blocks") else []
    words += [f"archs=[{','.join(request['archs'])}]"] if "archs" in request else []
    given = {name: value for name, value in request.get("validation", {}).items() if value is not None}
    words += [f"validate.{name}={str(value).lower()}" for name, value in given.items()]
    device = row["device"]
    words += [f"{name}={row[name]}" for name in ("seed", "threads")] + [f"device={device['device']}"]
    if device["device"] == "ptx":
        words += [f"device.arch={device['target']}", f"device.races={str(device['races']).lower()}"]
    for values in knob_values(catalog, row["stack"], row["knobs"]).values():
        words += [word for word in knob_words(values) if word not in words]
    return shlex.join(["python", "-m", "experiments", *words])
