"""Space of a search: which variants a stack may have, which values their knobs, and the candidates that are legal."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from typing import Any

from common.errors import LabError
from common.stacks.catalog import BASELINE, Catalog
from common.stacks.knobs import AUTO, WARP, Knob
from common.stacks.stack import check_stack, ordered, with_needed

ALL_TRIED = 8  # whole numbers in a range; of a longer range only the powers of two

Point = Mapping[str, int]  # parameter -> index of its value


@dataclass(frozen=True)
class Parameter:
    """One choice: a variant in or out of the stack, or a value of one of its knobs.

    ordered: neighboring values behave alike. usual: index of the default.
    """

    variant: str
    knob: str | None
    values: tuple[Any, ...]
    usual: int
    ordered: bool

    @property
    def name(self) -> str:
        return f"{self.variant}.{self.knob}" if self.knob else self.variant


@dataclass(frozen=True)
class Candidate:
    """A stack with the values of its knobs: variants innermost first, ((knob, value), ...)."""

    variants: tuple[str, ...]
    knobs: tuple[tuple[str, Any], ...]

    @property
    def values(self) -> dict[str, Any]:
        """{knob: value}, as a command line or a named stack gives them."""
        return {knob: list(value) if isinstance(value, tuple) else value for knob, value in self.knobs}


@dataclass(frozen=True)
class Space:
    """All legal candidates.

    variants  that a stack may have, in its order, each after the ones that it needs
    fixed     every stack has all of them
    given     knobs that are not searched, with their values
    """

    catalog: Catalog
    variants: tuple[str, ...]
    threads: int
    fixed: bool
    given: Mapping[str, Any]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        found = []
        for name in self.variants:
            if not self.fixed:
                found.append(Parameter(name, None, (False, True), 0, True))
            found += [
                self._of_knob(name, knob) for knob in self.catalog.variants[name].knobs if knob.name not in self.given
            ]
        return tuple(one for one in found if len(one.values) > 1)

    def candidate(self, point: Point) -> Candidate:
        """The candidate of a point, without variants that an earlier one excludes or whose requirement is missing."""
        chosen: list[str] = []
        for name in self.variants:
            wanted = self.fixed or point[name]
            if wanted and self._legal((*chosen, name)):
                chosen.append(name)
        values = [(one.knob, one.values[point[one.name]]) for name in chosen for one in self._knobs(name)]
        return Candidate(tuple(chosen), tuple((knob, value) for knob, value in values if knob))

    def point(self, candidate: Candidate) -> Point | None:
        """The point of a candidate, with the usual value of each knob that it lacks; None where it has other values."""
        values, point = dict(candidate.knobs), {}
        for one in self.parameters:
            inside = one.variant in candidate.variants
            usual = one.values[one.usual]
            value = (values.get(one.knob, usual) if inside else usual) if one.knob else inside
            if value not in one.values:
                return None
            point[one.name] = one.values.index(value)
        return point

    def beside(self, candidate: Candidate, generator: random.Random) -> Point:
        """A point beside a candidate: a variant added or removed, or another value of a knob; if ordered, the next one.

        An added variant brings all that it needs, and they replace the ones that they exclude. One of its knobs gets
        any value, since its default may not pay off.
        """
        point, known = dict(self.point(candidate) or {}), self.catalog.variants
        inside = candidate.variants
        one = generator.choice([each for each in self.parameters if not each.knob or each.variant in inside])
        if one.knob:
            at = point[one.name] + generator.choice((-1, 1)) if one.ordered else generator.randrange(len(one.values))
            return point | {one.name: min(max(at, 0), len(one.values) - 1)}
        if one.variant in inside:
            return point | {one.name: 0}
        added = with_needed(one.variant, self.catalog)
        for new, other in product(added, inside):
            if other in known[new].excludes or new in known[other].excludes:
                point[other] = 0
        if knobs := self._knobs(one.variant):
            knob = generator.choice(knobs)
            point[knob.name] = generator.randrange(len(knob.values))
        return point | dict.fromkeys(added, 1)

    def any(self, generator: random.Random) -> Point:
        """A point drawn uniformly, each parameter by itself."""
        return {one.name: generator.randrange(len(one.values)) for one in self.parameters}

    def _knobs(self, variant: str) -> list[Parameter]:
        return [one for one in self.parameters if one.knob and one.variant == variant]

    def _legal(self, variants: tuple[str, ...]) -> bool:
        try:
            check_stack(variants, self.catalog)
        except LabError:
            return False
        return True

    def _of_knob(self, variant: str, knob: Knob) -> Parameter:
        values = _values(knob, self.threads)
        usual = tuple(knob.default) if isinstance(knob.default, list) else knob.default
        ordered = knob.kind in ("int", "ratio") or all(isinstance(value, int) for value in values)
        return Parameter(variant, knob.name, values, values.index(usual) if usual in values else 0, ordered)


def _values(knob: Knob, threads: int) -> tuple[Any, ...]:
    """The values of a knob that are tried, smallest first."""
    if knob.kind == "ratio":
        warps = threads // WARP
        return tuple(f"{producers}:{warps - producers}" for producers in range(warps))
    if knob.kind == "choice":
        return (*knob.choices, AUTO) if knob.auto else knob.choices
    if knob.kind == "list":
        lengths = range(len(knob.choices) + 1)
        return tuple(chain.from_iterable(combinations(knob.choices, length) for length in lengths))
    low, high = knob.minimum, knob.maximum
    if low is None or high is None:  # no bound to search within
        return (knob.default,)
    own = (AUTO,) if knob.auto else ()
    if high - low < ALL_TRIED:
        return (*range(low, high + 1), *own)
    powers = (2**exponent for exponent in range(high.bit_length()))
    usual = () if knob.auto else (knob.default,)
    return (*sorted({low, high, *usual, *(power for power in powers if low <= power)}), *own)


def order(catalog: Catalog, names: Sequence[str]) -> tuple[str, ...]:
    """`names` without the baseline, each after the ones that it needs. Raises LabError for an unknown name."""
    each = [with_needed(name, catalog) for name in names]
    for one in each:
        check_stack(one, catalog)
    placed = dict.fromkeys(name for one in each for name in one if name in names and name != BASELINE)
    return ordered(tuple(placed), catalog)
