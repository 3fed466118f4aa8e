"""Model ids of the server, one for each variant and named stack, and their knobs."""

import time
from dataclasses import asdict
from typing import Any

from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack
from common.stacks.variant import NamedStack, Variant
from experiments.serving.errors import ApiError


class ServedModels:
    """Model ids: `MODEL` is the stack that the server was started with, `MODEL:NAME` a variant or named stack.

    variants: name, idea and knobs of each, for the page. created: the start of the server, in seconds since 1970.
    """

    def __init__(self, model: str, started: Stack) -> None:
        catalog = read_catalog()
        self.model, self.started, self.created = model, started.name, int(time.time())
        stacks = {started.name: ("", started.variants)}
        entries: dict[str, Variant | NamedStack] = {**catalog.variants, **catalog.stacks}
        for name, entry in entries.items():
            stacks[name] = entry.idea, (*entry.parent, name) if isinstance(entry, Variant) else entry.variants
        self._names, self.variants = list(stacks), list[dict[str, Any]]()
        for name, (idea, stack) in stacks.items():
            knobs = {knob.name: knob for one in stack for knob in catalog.variants[one].knobs}.values()
            shown = [{**asdict(knob), "takes": knob.describe()} for knob in knobs]
            self.variants.append({"name": name, "idea": idea, "knobs": shown})

    @property
    def ids(self) -> list[str]:
        return [self.model, *(f"{self.model}:{name}" for name in self._names)]

    def variant(self, model: str) -> str:
        """The variant that a request's `model` names. Raises ApiError."""
        if model not in self.ids:
            message = f"there is no model {model!r}; GET /v1/models lists what there is"
            raise ApiError(404, message, "model_not_found", param="model")
        return self.started if model == self.model else model.rpartition(":")[2]
