"""NVTX ranges in the domain `lab`: what nsys and ncu show beside the kernels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from common.errors import LabError

DOMAIN = "lab"


def title(verb: str, stack: Sequence[str], detail: str = "") -> str:
    """The message of a range: `compile baseline`, `validate vec128 [redundant_rmsnorm,vec128]`, `measure ... round 3`.

    `stack` is innermost first, () for the baseline; the variant on top names the kernel.
    """
    name = f"{stack[-1]} [{','.join(stack)}]" if stack else "baseline"
    return " ".join(filter(None, (verb, name, detail)))


@contextmanager
def annotate(message: str, color: str | None = None) -> Iterator[None]:
    """Push a range and pop it at the end of the block. Costs next to nothing where no tool listens.

    Push/pop and a registered string, because ncu's --nvtx-include matches only the one and nsys's `-c nvtx` only the
    other. Ranges nest per thread. Raises LabError without the nvtx package.
    """
    try:
        import nvtx
    except ImportError as error:
        raise LabError(
            f"the nvtx package does not import: {error}",
            "pip install nvtx, or where there is no network, install from the folder that `make wheelhouse` fills",
        ) from error
    with nvtx.annotate(message, color=color, domain=DOMAIN):
        yield
