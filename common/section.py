"""Typed reads from one section of the configuration; a bad value is refused by its full name."""

from collections.abc import Collection
from typing import Any

from common.errors import LabError
from common.suggest import unknown


class Section:
    """`values` is a plain dict as Hydra composed it; `path` is its place, `""` at the top or `"timing."`."""

    def __init__(self, values: dict[str, Any], path: str = "") -> None:
        self.values = values
        self.path = path

    def section(self, key: str) -> "Section":
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise LabError(
                f"{self.path}{key}={value} is not a section", f"override one of its keys: {self.path}{key}.KEY="
            )
        return Section(value, f"{self.path}{key}.")

    def only(self, known: Collection[str]) -> None:
        """Refuse keys that are not `known`, such as one added by `+key=value`."""
        for key in self.values.keys() - known:
            raise unknown("key", f"{self.path}{key}", [f"{self.path}{name}" for name in known])

    def given(self, key: str) -> bool:
        return self.values.get(key) is not None

    def whole(self, key: str, low: int, high: int | None = None) -> int:
        """An integer in low..high."""
        return self._whole(key, self.values.get(key), low, high)

    def wholes(self, key: str, low: int) -> tuple[int, ...]:
        """A list of at least one integer, each at least `low`; a single one counts as a list."""
        value = self.values.get(key)
        items = value if isinstance(value, list) else [value]
        if not items:
            raise LabError(f"{self.path}{key} is an empty list", f"give {self.path}{key}=[N,...]")
        return tuple(self._whole(key, item, low, None) for item in items)

    def number(self, key: str) -> float:
        """A number above zero."""
        value = self.values.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise LabError(f"{self.path}{key}={value} is not a positive number", f"give {self.path}{key}=X")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise LabError(f"{self.path}{key}={value} is neither true nor false", f"give {self.path}{key}=true")
        return value

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise LabError(f"{self.path}{key}={value} is not a text", f"give {self.path}{key}=TEXT")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, possibly empty."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise LabError(f"{self.path}{key}={value} is not a list of names", f"give {self.path}{key}=[a,b]")
        return tuple(value)

    def _whole(self, key: str, value: Any, low: int, high: int | None) -> int:
        inside = (
            isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high)
        )
        if not inside:
            span = f"of at least {low}" if high is None else f"in {low}..{high}"
            raise LabError(f"{self.path}{key}={value} is not a whole number {span}", f"give {self.path}{key}=N")
        return value
