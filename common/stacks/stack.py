"""Stacks of one command: their variants, their parents for comparison, and their knob values."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

from common.errors import LabError, unknown
from common.stacks.catalog import BASELINE, Catalog
from common.stacks.variant import NamedStack

Constants = Mapping[str, int | str]


@dataclass(frozen=True)
class Stack:
    """Variants composed into one kernel, innermost first; () is the baseline.

    name    as requested: a variant, a named stack, or the list joined by "+"
    parent  the stack it is compared with
    knobs   compile-time constants of every variant of the stack and of its parent
    """

    name: str
    variants: tuple[str, ...]
    parent: tuple[str, ...]
    knobs: Mapping[str, Constants]


def equals_parent(stack: Stack, catalog: Catalog) -> bool:
    """True if every variant added to the parent must keep its results bit for bit."""
    added = [catalog.variants[name] for name in stack.variants if name not in stack.parent]
    return bool(added) and not any(variant.why_not_bit_equal for variant in added)


def with_needed(name: str, catalog: Catalog, *by: str) -> tuple[str, ...]:
    """`name` after all variants that it needs, directly or not. An unknown name needs none. by: those that need it."""
    if name in by:
        raise LabError(f"{' and '.join(sorted({*by}))} need each other", "correct `requires` in their yaml")
    needed = catalog.variants[name].requires if name in catalog.variants else ()
    return tuple(dict.fromkeys((*chain.from_iterable(with_needed(one, catalog, name, *by) for one in needed), name)))


def title(variants: Sequence[str]) -> str:
    """The name of a stack in tables and errors: `redundant_rmsnorm + vec128`, or `baseline`."""
    return " + ".join(variants) or BASELINE


def knob_values(catalog: Catalog, variants: Sequence[str], knobs: Mapping[str, Constants]) -> dict[str, dict[str, Any]]:
    """{variant: {knob: value}} of `variants`, as the command line takes them. knobs: the constants of a Stack.

    For a variant that is no longer in the catalog, or has other knobs now, the constants themselves.
    """
    found = {}
    for name in variants:
        constants = dict(knobs.get(name) or {})
        try:
            found[name] = {knob.name: knob.value(constants) for knob in catalog.variants[name].knobs}
        except KeyError:
            found[name] = constants
    return {name: values for name, values in found.items() if values}


def knob_words(values: Mapping[str, Any]) -> list[str]:
    """{knob: value} as words of a command line: `ratio=2:6`, `matrices=[o,gate]`."""
    lists = {name: f"[{','.join(map(str, value))}]" for name, value in values.items() if isinstance(value, list)}
    return [f"{name}={lists.get(name, value)}" for name, value in values.items()]


def choose_stacks(
    catalog: Catalog, name: str, listed: Sequence[str] | None, given: Mapping[str, Any], threads: int
) -> tuple[Stack, ...]:
    """The stacks of `stack=[...]` (`listed`), or else of `variant=name`.

    given: knob values of this run; each goes to every variant with the knob. threads: of a block, for ratios.
    Raises LabError for unknown, broken, repeated or mutually exclusive variants, and for a knob that none takes.
    """
    selects = catalog.selections[name].selects if name in catalog.selections else ""
    default = catalog.selections[name].default if selects else ""
    if listed is not None:
        names = check_stack(listed, catalog)
        chosen = [NamedStack("+".join(names) or BASELINE, "", names, without_last(names, catalog))]
    elif not selects:
        chosen = [_named(catalog, name)]
    elif selects == "steps":
        whole = _named(catalog, default)
        steps = prefixes(whole.variants, catalog)
        chosen = [
            replace(whole, name=default if names == whole.variants else "+".join(names), variants=names, parent=parent)
            for names, parent in zip(steps, ((), *steps), strict=False)
        ]
    else:
        named = catalog.stacks if selects == "catalog" else ()
        chosen = [_named(catalog, one) for one in (*catalog.variants, *named, *catalog.broken)]
    present = {variant for stack in chosen for variant in stack.variants}
    for knob in given:
        takers = catalog.takers(knob)
        if present.isdisjoint(takers):
            stacks = ", ".join(stack.name for stack in chosen)
            raise LabError(f"{stacks} has no knob {knob}", f"leave it out; variants that take it: {', '.join(takers)}")
    return tuple(
        Stack(
            one.name,
            one.variants,
            one.parent,
            _constants(catalog, {*one.variants, *one.parent}, {**one.knobs, **given}, threads),
        )
        for one in chosen
    )


def check_stack(names: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """`names` as a stack, innermost first; a leading `baseline` is dropped.

    Raises LabError for an unknown name, a variant named twice, two that exclude each other, a missing requirement, or
    one that would replace what another overrides.
    """
    for name in names:
        if named := catalog.stacks.get(name):
            whole = dict.fromkeys(one for other in names for one in (named.variants if other == name else (other,)))
            cause = f"{name} is a stack of {len(named.variants)} variants, and a stack is a list of variants"
            raise LabError(cause, f"name them: stack=[{','.join(whole)}]")
        _check_known(name, catalog)
    stack = tuple(names[1:] if names and names[0] == BASELINE else names)
    for name in stack:
        if name == BASELINE:
            raise LabError(
                f"stack [{','.join(names)}] has {BASELINE} in the middle", "every stack begins with it anyway"
            )
        if stack.count(name) > 1:
            raise LabError(f"stack [{','.join(names)}] names {name} twice", "name each variant once")
        for other in catalog.variants[name].excludes:
            if other in stack:
                raise LabError(f"{name} and {other} exclude each other", "leave one of them out of the stack")
    for name in stack:
        for other in catalog.variants[name].requires:
            if other not in stack:
                own = "" if other in catalog.variants[name].parent else f", and {other} in `parent` of its yaml"
                every = ordered(tuple(dict.fromkeys(chain(*(with_needed(one, catalog) for one in stack)))), catalog)
                raise LabError(f"{name} needs {other} in its stack", f"name all: stack=[{','.join(every)}]{own}")
    if stack != (right := ordered(stack, catalog)):
        name, other = next((here, there) for here, there in zip(stack, right, strict=True) if here != there)
        raise LabError(
            f"{name} stands outside {other} in a stack, and [{','.join(names)}] names it first",
            f"name them as stack=[{','.join(right)}]",
        )
    for inner, outer in combinations((catalog.variants[name] for name in stack), 2):
        for member in sorted(inner.overrides.keys() & outer.overrides):
            if not outer.overrides[member] and inner.name not in (*outer.requires, *outer.outside):
                raise LabError(
                    f"{outer.name} replaces {member} of {inner.name}, which would not be executed",
                    f"leave one out; or call Base::{member}, or name {inner.name} in `outside` of {outer.name}'s yaml",
                )
    return stack


def prefixes(names: Sequence[str], catalog: Catalog) -> tuple[tuple[str, ...], ...]:
    """The legal stacks that are prefixes of `names`, shortest first."""
    found = []
    for end in range(1, len(names) + 1):
        with suppress(LabError):
            found.append(check_stack(names[:end], catalog))
    return tuple(found)


def without_last(names: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """The longest legal stack without the last of `names`: variants that need it are left out, too."""
    return tuple(name for name in names[:-1] if names[-1] not in with_needed(name, catalog))


def ordered(names: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """`names`, each after all variants that it must stand outside of; otherwise in their order."""
    placed: list[str] = []

    def place(name: str, *within: str) -> None:
        if name in within:
            cause = f"{' and '.join(sorted({name, *within}))} must stand outside of each other"
            raise LabError(cause, "correct `outside` in their yaml")
        for inner in names:
            if inner in catalog.variants[name].outside and inner not in placed:
                place(inner, name, *within)
        if name not in placed:
            placed.append(name)

    for name in names:
        place(name)
    return tuple(placed)


def _check_known(name: str, catalog: Catalog, *others: str) -> None:
    if name in catalog.broken:
        raise catalog.broken[name]
    if name not in catalog.variants:
        raise unknown("variant", name, [*catalog.variants, *others])


def _named(catalog: Catalog, name: str) -> NamedStack:
    """The stack of a name: a variant on top of its parent, or a named stack."""
    if named := catalog.stacks.get(name):
        return _checked(catalog, named)
    _check_known(name, catalog, *catalog.stacks, *catalog.selections)
    parent = catalog.variants[name].parent
    return NamedStack(name, "", check_stack((*parent, name), catalog), parent)


def _checked(catalog: Catalog, stack: NamedStack) -> NamedStack:
    names = check_stack(stack.variants, catalog)
    own = {knob.name for name in names for knob in catalog.variants[name].knobs}
    for key in sorted(stack.knobs.keys() - own):
        raise LabError(f"{stack.name} sets {key}, which none of its variants takes", f"known: {', '.join(sorted(own))}")
    return replace(stack, variants=names, parent=check_stack(stack.parent, catalog))


def _constants(catalog: Catalog, names: set[str], values: Mapping[str, Any], threads: int) -> dict[str, Constants]:
    resolved: dict[str, Constants] = {}
    for name in sorted(names):
        constants: dict[str, int | str] = {}
        for knob in catalog.variants[name].knobs:
            try:
                constants |= knob.constants(values.get(knob.name, knob.fitted(knob.default, threads)), threads)
            except LabError as error:
                raise LabError(f"{name}: {error.cause}", error.remedy) from None
        resolved[name] = constants
    return resolved
