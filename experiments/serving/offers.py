"""Model ids of the server, one for each variant and named stack, and their knobs."""

from collections.abc import Iterable
from typing import Any

from common.stacks.catalog import Catalog
from common.stacks.knobs import Knob
from common.stacks.stack import Stack
from common.stacks.variant import NamedStack, Variant
from experiments.serving.errors import ApiError


class Offers:
    """Model ids: `MODEL` is the stack that the server was started with, `MODEL:NAME` a variant or named stack."""

    def __init__(self, model: str, started: Stack, catalog: Catalog) -> None:
        self.model, self.started = model, started.name
        entries: dict[str, Variant | NamedStack] = {**catalog.variants, **catalog.stacks, **catalog.tuned}
        self._ideas = {started.name: ""} | {name: entry.idea for name, entry in entries.items()}
        self._knobs = {name: _knobs(catalog, (*variant.parent, name)) for name, variant in catalog.variants.items()}
        self._knobs |= {
            name: _knobs(catalog, stack.variants) for name, stack in {**catalog.stacks, **catalog.tuned}.items()
        }
        self._knobs.setdefault(started.name, _knobs(catalog, started.variants))

    @property
    def ids(self) -> list[str]:
        return [self.model, *(f"{self.model}:{name}" for name in self._ideas)]

    def variant(self, model: str) -> str:
        """The variant that a request's `model` names. Raises ApiError."""
        if model == self.model:
            return self.started
        prefix, _, name = model.rpartition(":")
        if prefix != self.model or name not in self._ideas:
            message = f"there is no model {model!r}; GET /v1/models lists what there is"
            raise ApiError(404, message, "model_not_found", param="model")
        return name

    def describe(self) -> list[dict[str, Any]]:
        """Every variant with its idea and its knobs, for the page."""
        return [
            {"name": name, "idea": idea, "knobs": [_knob(knob) for knob in self._knobs[name]]}
            for name, idea in self._ideas.items()
        ]


def _knobs(catalog: Catalog, names: Iterable[str]) -> list[Knob]:
    """The knobs of a stack, each once."""
    return list({knob.name: knob for name in names for knob in catalog.variants[name].knobs}.values())


def _knob(knob: Knob) -> dict[str, Any]:
    choices = list(knob.choices) if knob.kind == "choice" else []
    about = {"name": knob.name, "kind": knob.kind, "default": knob.default, "choices": choices}
    return about | {"takes": knob.describe(), "help": knob.help}
