"""The stacks one command runs: which variants, compared with which parent, with which knob values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.catalog import BASELINE, Catalog, NamedStack
from common.errors import LabError
from common.fastest import measured_on
from common.probe import find_gpu
from common.suggest import unknown

Constants = Mapping[str, int | str]


@dataclass(frozen=True)
class Stack:
    """Variants composed into one kernel, innermost first; () is the baseline.

    name    what was asked for: a variant, a named stack, or the list joined by "+"
    parent  the stack it is compared with
    knobs   compile-time constants of every variant of the stack and of its parent
    """

    name: str
    variants: tuple[str, ...]
    parent: tuple[str, ...]
    knobs: Mapping[str, Constants]

    @property
    def title(self) -> str:
        """`redundant_rmsnorm + vec128`, or `baseline`."""
        return title(self.variants)


def title(variants: Sequence[str]) -> str:
    """How a stack is written in tables and errors."""
    return " + ".join(variants) or BASELINE


def choose_stacks(
    catalog: Catalog, name: str, listed: Sequence[str] | None, given: Mapping[str, Any], threads: int
) -> tuple[Stack, ...]:
    """The stacks that `stack=[...]` (`listed`) or else `variant=name` stands for.

    given: knob values of this run; each goes to every variant that has the knob. threads: of a block, for ratios.
    Raises LabError for unknown, broken, repeated or mutually exclusive variants, and for a knob that none takes.
    """
    if listed is not None:
        names = check_stack(listed, catalog)
        plain = [("+".join(names) or BASELINE, names, names[:-1], {})]
    elif name not in catalog.selections:
        plain = [_of_name(catalog, name)]
    elif catalog.selections[name].selects == "every":
        plain = [_of_name(catalog, one) for one in (*catalog.variants, *catalog.broken)]
    else:
        plain = [_of_records(catalog, threads) or _of_name(catalog, catalog.selections[name].default)]
    _check_taken(catalog, given, [(stack_name, names) for stack_name, names, _, _ in plain])
    return tuple(
        Stack(stack_name, names, parent, _constants(catalog, {*names, *parent}, {**values, **given}, threads))
        for stack_name, names, parent, values in plain
    )


def check_stack(names: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """`names` as a stack, innermost first; a leading `baseline` is dropped.

    Raises LabError for an unknown name, a variant named twice, two that exclude each other, or one that is missing.
    """
    for name in names:
        _check_known(name, catalog)
    stack = tuple(names[1:] if names and names[0] == BASELINE else names)
    for name in stack:
        if name == BASELINE:
            raise LabError(
                f"stack [{','.join(names)}] has {BASELINE} in the middle", "it is what every stack stands on"
            )
        if stack.count(name) > 1:
            raise LabError(f"stack [{','.join(names)}] names {name} twice", "name each variant once")
        for other in catalog.variants[name].excludes:
            if other in stack:
                raise LabError(f"{name} and {other} exclude each other", "leave one of them out of the stack")
    for name in stack:
        for other in catalog.variants[name].requires:
            if other not in stack:
                raise LabError(f"{name} needs {other} in its stack", f"name both: stack=[{other},{name}]")
    return stack


def _check_known(name: str, catalog: Catalog, *others: str) -> None:
    if name in catalog.broken:
        raise catalog.broken[name]
    if name not in catalog.variants:
        raise unknown("variant", name, [*catalog.variants, *others])


_Plain = tuple[str, tuple[str, ...], tuple[str, ...], Mapping[str, Any]]  # name, variants, parent, knob values


def _of_name(catalog: Catalog, name: str) -> _Plain:
    if name in catalog.stacks:
        return _of_named(catalog, catalog.stacks[name])
    _check_known(name, catalog, *catalog.stacks, *catalog.selections)
    parent = catalog.variants[name].parent
    return name, check_stack((*parent, name), catalog), parent, {}


def _of_named(catalog: Catalog, stack: NamedStack) -> _Plain:
    names = check_stack(stack.variants, catalog)
    own = {knob.name for name in names for knob in catalog.variants[name].knobs}
    for key in sorted(stack.knobs.keys() - own):
        raise LabError(f"{stack.name} sets {key}, which none of its variants takes", f"known: {', '.join(sorted(own))}")
    return stack.name, names, check_stack(stack.parent, catalog), stack.knobs


def _of_records(catalog: Catalog, threads: int) -> _Plain | None:
    """The fastest recorded stack of this GPU that can still be composed; None without a GPU or a record of it."""
    try:
        rows = measured_on(find_gpu(), catalog.root / "experiments" / "results", threads)
    except LabError:
        return None
    for row in rows:
        try:
            names, parent = check_stack(row["stack"], catalog), check_stack(row["parent"], catalog)
            knobs = [(knob, row["knobs"][one]) for one in names for knob in catalog.variants[one].knobs]
            values = {knob.name: knob.value(constants) for knob, constants in knobs}
        except (LabError, KeyError):  # a variant or a knob of it is there no more
            continue
        return row["variant"], names, parent, values
    return None


def _check_taken(catalog: Catalog, given: Mapping[str, Any], chosen: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    present = {variant for _, names in chosen for variant in names}
    for knob in given:
        takers = catalog.takers(knob)
        if present.isdisjoint(takers):
            asked = ", ".join(name for name, _ in chosen)
            raise LabError(f"{asked} has no knob {knob}", f"leave it out; variants that take it: {', '.join(takers)}")


def _constants(catalog: Catalog, names: set[str], values: Mapping[str, Any], threads: int) -> dict[str, Constants]:
    resolved = {}
    for name in sorted(names):
        constants: dict[str, int | str] = {}
        for knob in catalog.variants[name].knobs:
            try:
                constants |= knob.constants(values.get(knob.name, knob.default), threads)
            except LabError as error:
                raise LabError(f"{name}: {error.cause}", error.remedy) from None
        resolved[name] = constants
    return resolved
