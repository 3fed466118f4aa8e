"""A stand-in for the driver side of CUDA: CuPy, pynvml and libcuda, so that the lab's CUDA path runs without a GPU.

With this folder first on PYTHONPATH a Python process finds these packages instead of the real ones, and so do its
children. Nothing outside tests/ knows of it.

Strict where CuPy or a GPU is silent: arguments of kernels must be of the C type (CuPy passes raw bits), a buffer that
another stream may still use is refused with both lines, also when it has been freed and the pool gives its memory away,
a graph of arrays that are gone is refused, memory is 0xff until it is written, addresses must be of living buffers,
accesses beside a buffer and writes of what the kernel declares const are illegal, and times may be read only after
waiting.
Like CuPy: a cooperative grid that is too large is made smaller with a warning, queries hide errors, and freed memory
stays with the pool.
Real: NVRTC compiles every text for sm_90 as CuPy would have it; registers, shared and local memory are the cubin's;
pynvml is the real one over a made-up NVML. The machine of the PTX device executes kernels, in another order at every
launch, and numpy the probes, which take it too long.

What it cannot show:
- times: seconds are made of counts (standin_gpu/cost.py) and say nothing about any GPU; Python's own time is real;
- the GPU's memory order and caches, warps that really run at once, real residency, and what only ptxas gets wrong;
- waits that give up after more than 2^18 polls: they never end;
- reads of pinned memory by the host before a kernel is done; timing of errors: they are found by the next wait;
- the sizes of a real model: its memory is 64 MiB; torch.cuda, nsys, ncu and CUDA libraries do not exist;
- anything but launches, copies on the GPU and memsets in a capture: the rest is refused;
- fragments of the pool, a full queue of launches, times in steps of half a us;
- CuPy beyond what the lab uses: a name that is missing here is an AttributeError.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REPLACED = ("cupy", "cupyx", "pynvml", "standin_gpu")


def environment(**more: str) -> dict[str, str]:
    """Variables of a process that finds the stand-in. more: see standin_gpu/faults.py and clock.py."""
    paths = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")]), str(FOLDER.parent.parent)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "STANDIN_GPU": str(os.getpid())} | more


@contextmanager
def installed() -> Iterator[None]:
    """This process and its children find the stand-in; afterwards what was there before."""
    before, variables = _taken(), os.environ.copy()
    os.environ.update(environment())
    sys.path.insert(0, str(FOLDER))
    from standin_gpu import libraries

    libraries.install()
    try:
        yield
    finally:
        libraries.remove()
        _taken()
        sys.path.remove(str(FOLDER))
        sys.modules.update(before)
        os.environ.clear()
        os.environ.update(variables)


def _taken() -> dict[str, object]:
    """The modules that the stand-in replaces, taken out of sys.modules."""
    names = [name for name in sys.modules if name.partition(".")[0] in REPLACED]
    return {name: sys.modules.pop(name) for name in names}
