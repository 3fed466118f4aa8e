"""Fields that a row must have to be read: a row without one of them counts as damaged, like a torn line."""

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, TypeGuard

from common.model.shapes import Model

Fields = dict[str, Any]  # by name, dotted inside of another: a type, or a tuple of types
EVERY: Fields = {"id": str, "schema": int, "time": str}
STACK: Fields = {
    **dict.fromkeys(("variant", "source_sha"), str),
    **dict.fromkeys(("knobs", "model", "provenance"), dict),
    **{f"model.{field.name}": (int, float) if field.type is float else field.type for field in fields(Model)},
    "stack": list,
    "threads": int,
}
RUN: Fields = {
    **dict.fromkeys(("key", "status", "reason"), str),
    **dict.fromkeys(("weights.sha", "weights.source", "device.device", "device.compiler"), str),
    **dict.fromkeys(("verdict", "counts", "generation"), (dict, NoneType)),
    "resources": dict,
    "latencies": list,
    "parent": list,
    "seed": int,
}
TABLE: Fields = {
    **dict.fromkeys(("kind", "question", "basis"), str),
    **dict.fromkeys(("columns", "table", "notes"), list),
    "needs_gpu": (str, NoneType),
    "provenance": dict,
}
OF_KIND: Mapping[str, Fields] = {
    "run": STACK | RUN,
    "count": STACK | {"key": str, "counts": dict, "blocks": int},
    "row": {"asked": dict, "asked.task": str, "reason": str, "took": (int, float), "provenance": dict},
    "step": {
        **dict.fromkeys(("name", "asked", "device", "state"), str),
        **dict.fromkeys(("seconds", "row_seconds"), (int, float)),
        "rows": int,
        "provenance": dict,
    },
    "build": STACK | {"resources": dict},
}


def is_whole(row: Any) -> TypeGuard[dict[str, Any]]:
    """True if `row` has all that a row of its kind must have, and each of them as JSON's own type of it."""
    if not isinstance(row, dict):
        return False
    wanted = EVERY | OF_KIND.get(str(row.get("kind")), {}) | (TABLE if "table" in row else {})
    return all(isinstance(_at(row, name.split(".")), kind) for name, kind in wanted.items())


def _at(row: Any, path: list[str]) -> Any:
    """The value at `path`; where there is none, a value of no kind above."""
    for name in path:
        if not isinstance(row, dict) or name not in row:
            return ...
        row = row[name]
    return row
