"""One object of the lab after another in which a single field differs, from its own list of fields."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

# Another value of a text, which cannot be made from the first; a new field without one here fails.
TEXTS = {"name": "other", "format": "int4:16", "head_format": "fp8", "kv_format": "int8", "rope": "llama3:8:1:4:64",
         "kind": "int8"}  # fmt: skip


def changed(one: Any) -> Iterator[tuple[str, Any]]:
    """(name of a field, the same object with another value of it)."""
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, bool):
            other: Any = not value
        else:
            other = TEXTS[field.name] if isinstance(value, str) else value * 2
        yield field.name, replace(one, **{field.name: other})
