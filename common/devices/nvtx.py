"""NVTX ranges in the domain `lab`, which nsys and ncu show on the timeline of the kernels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from common.errors import LabError


def title(verb: str, stack: Sequence[str], detail: str = "") -> str:
    """Message of a range: `compile baseline`, `validate vec128 [redundant_rmsnorm,vec128]`, `measure ... round 3`.

    verb: the step of the lab. stack: variants, innermost first, () for the baseline; the last one names the kernel.
    """
    name = f"{stack[-1]} [{','.join(stack)}]" if stack else "baseline"
    return " ".join(filter(None, (verb, name, detail)))


@contextmanager
def annotate(message: str) -> Iterator[None]:
    """Context that is one push/pop range with a registered string; ranges nest per thread.

    ncu's --nvtx-include matches only push/pop ranges, and nsys's `-c nvtx` only registered strings. The cost is
    negligible while no tool is attached. Raises LabError without the nvtx package.
    """
    try:
        import nvtx
    except ImportError as error:
        raise LabError(
            f"the nvtx package does not import: {error}",
            "pip install nvtx; without a network, install it from the folder that `make wheelhouse` fills",
        ) from error
    with nvtx.annotate(message, domain="lab"):
        yield
