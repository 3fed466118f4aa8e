"""Three Triton kernels and the PTX that Triton makes of them, without a GPU: `python tests/samples/triton_kernels.py`.

Needs Triton (`pip install triton`), which the lab does not; the PTX beside this file is of Triton 3.9.0.
"""

import re
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile


@triton.jit
def matvec(w, x, y, columns, block: tl.constexpr):
    """y = W x in fp32 for bf16 weights; a program for each row."""
    row = tl.program_id(0)
    total = tl.zeros((block,), tl.float32)
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        here = at < columns
        weights = tl.load(w + row * columns + at, mask=here, other=0.0).to(tl.float32)
        total += weights * tl.load(x + at, mask=here, other=0.0)
    tl.store(y + row, tl.sum(total))


@triton.jit
def softmax(x, y, columns, block: tl.constexpr):
    """Softmax of each row in fp32; a program for each row of at most block columns."""
    row, at = tl.program_id(0), tl.arange(0, block)
    here = at < columns
    value = tl.load(x + row * columns + at, mask=here, other=-float("inf"))
    weight = tl.exp(value - tl.max(value))
    tl.store(y + row * columns + at, weight / tl.sum(weight), mask=here)


@triton.jit
def product(a, b, c, columns, inner, tile: tl.constexpr):
    """C = A B in fp32 for bf16 matrices with sizes in multiples of `tile`; a program for each tile of C."""
    row = tl.program_id(0) * tile + tl.arange(0, tile)
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    total = tl.zeros((tile, tile), tl.float32)
    for start in range(0, inner, tile):
        at = start + tl.arange(0, tile)
        left = tl.load(a + row[:, None] * inner + at[None, :])
        right = tl.load(b + at[:, None] * columns + column[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * columns + column[None, :], total)


POINTERS = {"w": "*bf16", "a": "*bf16", "b": "*bf16"}
UNNEEDED = re.compile(r"\s*(//|\.loc\b|$)|\$L__(tmp|func)")
MADE = ((matvec, 90, {"block": 128}, 4, 1), (softmax, 90, {"block": 256}, 4, 1), (product, 80, {"tile": 32}, 2, 3))


def ptx(kernel, arch: int, constants: dict[str, int], warps: int, stages: int) -> str:
    """PTX without what debuggers need."""
    names = [name for name in kernel.arg_names if name not in constants]
    types = {name: POINTERS.get(name, "*fp32" if name in "abcwxy" else "i32") for name in names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names)}
    source = ASTSource(kernel, types | dict.fromkeys(constants, "constexpr"), constants, aligned)
    made = compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, "num_stages": stages})
    text, end, _ = made.asm["ptx"].partition("\n}\n")
    return "".join(line for line in (text + end).splitlines(True) if not UNNEEDED.match(line))


if __name__ == "__main__":
    for kernel, *how in MADE:
        Path(__file__).with_name(f"{kernel.__name__}.ptx").write_text(ptx(kernel, *how))
