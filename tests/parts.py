"""A part of a decode step in one launch, for tests: a mixin that goes around any stack, as a variant would, and does
only the stages that the input token names. So a stage is tested alone, even where it finds its input in shared memory.
"""

from collections.abc import Sequence
from pathlib import Path

from common.catalog import Variant
from common.model import Model
from common.source import Knobs, Source, build

# Norms go together with what reads them.
PARTS = (
    ("input_norm", "qkv"),
    ("attention",),
    ("o_proj",),
    ("post_norm", "gate_up"),
    ("down",),
    ("final_norm", "lm_head", "argmax"),
)
MIXIN = "template <class Base> struct Part : Base {{ using Self = typename Base::Self; \
static DEVICE void step(const Context &c) {{ {} }} }};"


def build_parts(
    stack: Sequence[Variant],
    model: Model,
    folder: Path,
    parts: Sequence[Sequence[str]] = PARTS,
    layer: int = 0,
    threads: int = 256,
    knobs: Knobs | None = None,
) -> Source:
    """`stack` as a kernel that, given token i, does only `parts[i]`, of layer `layer`. `folder` takes the mixin."""
    calls = [
        f"if (c.token == {number}) {{ "
        + " ".join(f"Self::template stage<Stage::{s}>(c, {layer if s not in LAST else 0});" for s in stages)
        + " }"
        for number, stages in enumerate(parts)
    ]
    file = folder / "part.cu"
    file.write_text('#include "common/device/decode.cuh"\n' + MIXIN.format(" ".join(calls)) + "\n")
    part = Variant("part", file, "", "", (), (), (), "cooperative", 75, True, "", "", (), (), "Part")
    return build([*stack, part], model, threads, knobs)


LAST = ("final_norm", "lm_head", "argmax")
