"""Kernels whose whole step is a few lines of a test: `test:1` is the first."""

import dataclasses

from common.compile.source import KERNEL, Source, build, flatten
from common.model.shapes import Model


def bare_kernel(model: Model, body: str, shared: str = "", threads: int = 64) -> Source:
    """A kernel whose step is `body`; `c` is the context, `s` the shared struct, `out` the scratch buffer."""
    base = build([], model, threads)
    constants = base.text.split('#line 1 "common')[0]
    text = "\n".join(
        [
            constants,
            *flatten(KERNEL / "decode.cuh", set()),
            f"struct Kernel {{ struct Shared {{ {shared} int unused; }};",
            "static DEVICE void decode(const Context &c, int) {",
            "  Shared &s = shared<Kernel>(c); float *out = c.scratch; (void)s; (void)out;",
            '#line 1 "test"',
            body,
            "} };",
            f"KERNEL_ENTRY(Kernel, {threads}, 1)",
        ]
    )
    return dataclasses.replace(base, text=text)
