"""Knobs, the compile-time choices of variants: kinds, ranges, and reading of values."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.errors import LabError
from common.model.stages import WARP

KINDS = ("int", "choice", "ratio", "list")
SETS = ("", "launch", "tokens_per_launch", "tokens_per_step", "blocks_per_sm")
AUTO = "auto"  # as a value: the result of `Knob.auto` for the target GPU


class Target(NamedTuple):
    """Numbers of a GPU and a kernel for `Knob.auto`."""

    arch: int  # 90 for sm_90
    shared_kb: int  # shared memory that a block may have
    bulk_copies: int  # 1 if the GPU has them
    tokens_per_step: int  # tokens that a step of the kernel decodes


@dataclass(frozen=True)
class Knob:
    """One compile-time choice of a variant.

    kind     int     a whole number in minimum..maximum (None: no bound)
             choice  one of `choices`
             ratio   "P:C" producer and consumer warps of one block; together they are all its warps, C >= 1
             list    any of `choices`
    sets     the field of a Source that takes the value: launch, tokens_per_launch, tokens_per_step or blocks_per_sm;
             "": none
    default  used unless the command line or a named stack says otherwise
    auto     expression (`common.model.expressions`) over `Target`, the model's shape and the other knobs, for the whole
             number, or the index in `choices`, on each GPU; with it AUTO is a value, too
    shared   True if it decides a block's shared memory
    min_arch {choice: lowest compute capability}, ten times, of choices with another one than the variant
    """

    name: str
    kind: str
    default: Any
    help: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[int | str, ...] = ()
    sets: str = ""
    auto: str = ""
    shared: bool = False
    min_arch: Mapping[str, int] = field(default_factory=dict)

    def constants(self, value: Any, threads: int) -> dict[str, int | str]:
        """The compile-time constants of `value`, in a block of `threads` threads.

        int and choice give {name: value}; ratio gives {"producers": P, "consumers": C} under any knob name;
        list gives {name_choice: 0 or 1} for every choice. Raises LabError for a value that the knob does not take.
        """
        if self.kind == "ratio":
            return self._ratio(value, threads)
        if self.kind == "list":
            return self._list(value)
        if self.auto and value == AUTO:
            return {self.name: AUTO}
        return {self.name: self._int(value) if self.kind == "int" else self._choice(value)}

    def value(self, constants: Mapping[str, int | str]) -> Any:
        """The value behind `constants`; other knobs' may be among them. Raises KeyError without its own."""
        if self.kind == "ratio":
            return f"{constants['producers']}:{constants['consumers']}"
        if self.kind == "list":
            return [choice for choice in self.choices if constants[f"{self.name}_{choice}"]]
        return constants[self.name]

    def fitted(self, value: Any, threads: int) -> Any:
        """`value` for a block of `threads` threads: a ratio is scaled to its warps, in about the same proportion."""
        if self.kind != "ratio":
            return value
        producers, consumers = map(int, str(value).split(":"))
        warps = threads // WARP
        share = min(max(round(warps * producers / (producers + consumers)), 1), warps - 1) if producers else 0
        return f"{share}:{warps - share}"

    def ends(self, threads: int) -> tuple[Any, Any]:
        """The lowest and the highest value in a block of `threads` threads; for lists the empty and the full one.

        With `auto`, the highest is AUTO.
        """
        if self.kind == "int":
            low, high = (self.default if end is None else end for end in (self.minimum, self.maximum))
            return low, AUTO if self.auto else high
        if self.kind == "choice":
            return self.choices[0], AUTO if self.auto else self.choices[-1]
        if self.kind == "list":
            return (), self.choices
        warps = threads // WARP
        return (f"{min(1, warps - 1)}:{max(1, warps - 1)}", f"{warps - 1}:1")

    def describe(self) -> str:
        """Values of the knob, in a few words: `1..16`, `prefetch | ldg`, `P:C`, `any of [o,gate]`."""
        choices = [str(choice) for choice in self.choices]
        if self.kind == "int":
            span = f"{'' if self.minimum is None else self.minimum}..{'' if self.maximum is None else self.maximum}"
            return f"{span} | {AUTO}" if self.auto else span
        choices += [AUTO] if self.auto and self.kind == "choice" else []
        return {"choice": " | ".join(choices), "ratio": "P:C", "list": f"any of [{','.join(choices)}]"}[self.kind]

    def _int(self, value: Any) -> int:
        low, high = self.minimum, self.maximum
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or (low is not None and value < low) or (high is not None and value > high):
            within = "" if low is high is None else f" in {self.describe()}"
            raise LabError(f"{self.name}={value} is not a whole number{within}", f"give {self.name}=N")
        return value

    def _choice(self, value: Any) -> int | str:
        for choice in self.choices:
            if str(choice) == str(value):
                return choice
        raise LabError(f"{self.name}={value} is unknown", f"choose {self.name} from {self.describe()}")

    def _ratio(self, value: Any, threads: int) -> dict[str, int | str]:
        warps = threads // WARP
        remedy = f"give {self.name}=P:C with P + C = {warps}, the warps of a block of {threads} threads, and C >= 1"
        match = re.fullmatch(r"(\d+):(\d+)", str(value), re.ASCII)
        producers, consumers = map(int, match.groups()) if match else (0, 0)
        if consumers < 1 or producers + consumers != warps:
            raise LabError(f"{self.name}={value} is not P:C of {warps} warps", f'{remedy}; in a yaml in quotes: "2:6"')
        return {"producers": producers, "consumers": consumers}

    def _list(self, value: Any) -> dict[str, int | str]:
        several = isinstance(value, Iterable) and not isinstance(value, str)
        items = [str(item) for item in (value if several else [value])]
        unknown = [item for item in items if item not in map(str, self.choices)]
        if unknown or len(set(items)) < len(items):
            wrong = f"does not know {', '.join(unknown)}" if unknown else "names one twice"
            raise LabError(f"{self.name}=[{','.join(items)}] {wrong}", f"give {self.name}={self.describe()}")
        return {f"{self.name}_{choice}": int(str(choice) in items) for choice in self.choices}
