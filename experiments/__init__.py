"""The commands of the lab, and `Lab` for Python."""

from typing import TYPE_CHECKING, Any

from common.errors import LabError

if TYPE_CHECKING:
    from experiments.lab import Lab

__all__ = ["Lab", "LabError"]


def __getattr__(name: str) -> Any:
    """`Lab` is imported when it is first used, so that no command pays for it."""
    if name == "Lab":
        from experiments.lab import Lab

        return Lab
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
