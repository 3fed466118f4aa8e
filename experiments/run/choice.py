"""Stacks that an experiment asks about: by its options, with the knobs of the command line."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from common.config.section import Section
from common.errors import LabError
from common.stacks.stack import Stack, check_stack
from experiments.run.setup import Setup


class Choice(Setup):
    """A setup whose stacks are not those of the run alone, but of `options`, too."""

    @property
    def options(self) -> Section:
        return self.config.options

    def stack(self, name: str) -> Stack:
        """The variant or named stack `name`, with its knobs from the command line."""
        return self.choose(name, self.own_knobs(self.choose(name, {}).variants))

    def stacks(self, names: Sequence[str], *more: Stack) -> list[Stack]:
        """`stack` of each of `names`, else of all variants and named stacks; then `more`.

        Raises LabError as `check_given` does.
        """
        names = names or (*self.catalog.variants, *self.catalog.stacks)
        chosen = [*map(self.stack, names), *more]
        self.check_given(chosen)
        return chosen

    @property
    def chosen(self) -> list[Stack]:
        """The stacks of `options.variants`, else the run's."""
        names = self.options.texts("variants")
        stacks = [*map(self.stack, names)] if names else list(self.config.stacks)
        self.check_knobs(stacks)
        return stacks

    def check_given(self, stacks: Sequence[Stack]) -> None:
        """Raise LabError for variant=, stack= or a knob of the command line without effect on the own `stacks`."""
        names, catalog = [stack.name for stack in self.config.stacks], self.catalog
        if names != [*catalog.variants, *catalog.broken]:  # not those of variant=all, the default
            one = names[0] if len(names) == 1 and names[0] in {*catalog.variants, *catalog.stacks} else "NAME"
            remedy = f"give options.variants=[{one}]" if "variants" in self.options.values else "leave it out"
            raise LabError(f"variant= or stack= has no effect on experiment={self.config.task}", remedy)
        self.check_knobs(stacks)

    def check_knobs(self, stacks: Sequence[Stack]) -> None:
        """Raise LabError for a knob of the command line that none of `stacks` has."""
        effective = self.own_knobs([name for stack in stacks for name in stack.variants])
        for knob in sorted(self.config.knobs.keys() - effective.keys()):
            names = ", ".join(stack.name for stack in stacks) or "it"
            cause = f"{knob}= has no effect on experiment={self.config.task}: {names} has no such knob"
            raise LabError(cause, f"leave it out; variants that take it: {', '.join(self.catalog.takers(knob))}")

    def composed(self, names: Sequence[str], parent: Sequence[str], like: Stack | None = None) -> Stack:
        """The stack of `names` compared with `parent`; knobs as in `like`, else of the command line or the defaults."""
        stack = self.choose(list(names), self.own_knobs(names))
        knobs = dict(stack.knobs) | {name: like.knobs[name] for name in stack.knobs if like and name in like.knobs}
        return replace(stack, parent=check_stack(parent, self.catalog), knobs=knobs)

    def own_knobs(self, variants: Sequence[str]) -> dict[str, Any]:
        """Knobs of the command line that one of `variants` has."""
        takers = self.catalog.takers
        return {knob: value for knob, value in self.config.knobs.items() if not set(variants).isdisjoint(takers(knob))}
