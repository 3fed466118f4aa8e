"""Kernels with a few lines of a test as their whole step: `test:1` is the first."""

import dataclasses
from pathlib import Path

from common.compile.source import KERNEL, Source, build, flatten
from common.model.shapes import Model


def bare_kernel(
    model: Model, body: str, shared: str = "", threads: int = 64, load: str | None = None, members: str = ""
) -> Source:
    """A kernel with the step `body`; `c` is the context, `s` the shared struct, `out` the scratch buffer.

    load: body of a loader warp beside the `threads`; None: no loader. members: what else the kernel's type declares.
    """
    base = build([], model, threads)
    constants = base.text.split('#line 1 "common')[0]
    loaders = int(load is not None)
    constants = constants.replace("loader_warps = 0", f"loader_warps = {loaders}")
    own = "Shared &s = shared<Kernel>(c); float *out = c.scratch; (void)s; (void)out;"
    names, seen = (*(["scaled"] if base.layout.scaled else []), "decode", "tensor"), set[Path]()
    text = "\n".join(
        [
            constants,
            *(line for name in names for line in flatten(KERNEL / f"{name}.cuh", seen)),
            f"struct Kernel {{ struct Shared {{ {shared} int unused; }};",
            members,
            "static DEVICE void enter(const Context &) {}",
            f"static DEVICE void decode(const Context &c, int) {{ {own}",
            '#line 1 "test"',
            body,
            f"}} static DEVICE void load(const Context &c, int) {{ {own}",
            '#line 1 "loader"',
            load or "",
            "} };",
            f"KERNEL_ENTRY(Kernel, {threads + 32 * loaders}, 1)",
        ]
    )
    return dataclasses.replace(base, text=text, loader_warps=loaders)
