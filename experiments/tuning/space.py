"""Space of a search: which variants a stack may have, which values their knobs, and the candidates that are legal."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from math import prod
from typing import Any

from common.errors import LabError
from common.stacks.catalog import BASELINE, Catalog
from common.stacks.knobs import AUTO, WARP, Knob
from common.stacks.stack import check_stack, ordered, with_needed

ALL_TRIED = 8  # whole numbers in a range; of a longer range only the powers of two

Point = Mapping[str, int]  # parameter -> index of its value


@dataclass(frozen=True)
class Parameter:
    """One choice: a variant in or out of the stack, or the value of one of its knobs. ordered: near ones are alike."""

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
    fixed     whether every stack has all of them
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

    @cached_property
    def size(self) -> int:
        """Number of candidates."""
        of = {name: prod(len(one.values) for one in self._knobs(name)) for name in self.variants}
        return sum(prod(of[name] for name in stack) for stack in self._stacks)

    def candidate(self, point: Point) -> Candidate:
        """The candidate of a point. A variant that another one before it excludes, or that lacks one, is left out."""
        chosen: list[str] = []
        for name in self.variants:
            wanted = self.fixed or point[name]
            if wanted and self._legal((*chosen, name)):
                chosen.append(name)
        values = [(one.knob, one.values[point[one.name]]) for name in chosen for one in self._knobs(name)]
        return Candidate(tuple(chosen), tuple((knob, value) for knob, value in values if knob))

    def point(self, candidate: Candidate) -> Point | None:
        """The point of a candidate, with the usual value of each knob that it lacks; None for one of another space."""
        values, point = dict(candidate.knobs), {}
        for one in self.parameters:
            inside = one.variant in candidate.variants
            value = (values.get(one.knob) if inside else one.values[one.usual]) if one.knob else inside
            if value not in one.values:
                return None
            point[one.name] = one.values.index(value)
        return point if self.candidate(point) == candidate else None

    def usual(self, variants: Sequence[str]) -> Point:
        """The point of a stack with the usual values of all knobs."""
        return {one.name: one.usual if one.knob else int(one.variant in variants) for one in self.parameters}

    def near(self, candidate: Candidate) -> list[list[Candidate]]:
        """Neighbors: one variant added or removed, or one knob changed.

        Of an ordered knob the values next to its own.

        An added variant replaces the ones that it excludes, and brings the ones that it needs. It
        comes with every value of one of its knobs: with the usual one it may not pay.
        """
        point = self.point(candidate)
        found: list[list[Point]] = []
        assert point is not None  # a point of this space
        for one in self.parameters:
            if one.knob is None:
                found.append(self._toggled(point, candidate, one.variant))
            elif one.variant in candidate.variants:
                at, last = point[one.name], len(one.values)
                others = (at - 1, at + 1) if one.ordered else range(last)
                found.append([{**point, one.name: other} for other in others if 0 <= other < last])
        return [[new for new in map(self.candidate, points) if new != candidate] for points in found]

    def _toggled(self, point: Point, candidate: Candidate, variant: str) -> list[Point]:
        if variant in candidate.variants:
            return [{**point, variant: 0}]
        known = self.catalog.variants
        rivals = [other for other in candidate.variants if self._exclude(other, variant)]
        added = {**point, **dict.fromkeys(rivals, 0), **dict.fromkeys((*known[variant].requires, variant), 1)}
        return [added, *({**added, one.name: at} for one in self._knobs(variant) for at in range(len(one.values)))]

    def _exclude(self, one: str, other: str) -> bool:
        known = self.catalog.variants
        return other in known[one].excludes or one in known[other].excludes

    def any(self, generator: random.Random) -> Point:
        """A point drawn evenly for each parameter."""
        return {one.name: generator.randrange(len(one.values)) for one in self.parameters}

    def __iter__(self) -> Iterator[Candidate]:
        for stack in self._stacks:
            knobs = [one for name in stack for one in self._knobs(name)]
            for values in product(*(one.values for one in knobs)):
                chosen = zip(knobs, values, strict=True)
                yield Candidate(stack, tuple((one.knob, value) for one, value in chosen if one.knob))

    def _knobs(self, variant: str) -> list[Parameter]:
        return [one for one in self.parameters if one.knob and one.variant == variant]

    @cached_property
    def _stacks(self) -> list[tuple[str, ...]]:
        """All legal stacks. Each is a legal one and one more variant: the variants that this needs come before it."""
        found: list[tuple[str, ...]] = [self.variants if self.fixed else ()]
        for name in () if self.fixed else self.variants:
            found += [(*stack, name) for stack in found if self._legal((*stack, name))]
        return found

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
