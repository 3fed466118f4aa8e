"""Part of a decode step in one launch: a mixin on top of any stack that executes only the stages that the input token
selects. So a stage is tested alone, even if its input is in shared memory.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from common import ROOT
from common.compile.source import Knobs, Source, build
from common.model.shapes import Model
from common.stacks.variant import Variant

# Each norm is tested together with the stage that reads it.
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
    """`stack` as a kernel that, for token i, executes only `parts[i]` in layer `layer`; `folder` gets the mixin.

    Before a norm comes what follows the stage that it reads: a stack may have the norm begin there.
    """
    before = {"input_norm": ("down", layer - 1), "post_norm": ("o_proj", layer)}
    calls = []
    for number, stages in enumerate(parts):
        after = [
            f"Self::template after<Stage::{stage}>(c, {at});" for stage, at in filter(None, map(before.get, stages))
        ]
        own = [f"Self::template stage<Stage::{s}>(c, {layer if s not in LAST else 0});" for s in stages]
        calls.append(f"if (c.token == {number}) {{ {' '.join((*after, *own))} }}")
    file = folder / "part.cu"
    file.write_text('#include "common/kernel/decode.cuh"\n' + MIXIN.format(" ".join(calls)) + "\n")
    part = Variant("part", file, idea="")
    return build([*stack, part], model, threads, knobs)


def header(name: str) -> dict[str, str]:
    """Fields of the comment at the head of a variant's source."""
    head = (ROOT / "variants" / f"{name}.cu").read_text().partition("\n#include")[0]
    return {key: re.sub(r"\n//\s+", " ", text) for key, text in re.findall(r"// (\w+)\s+(.+(?:\n//\s{2,}.+)*)", head)}


LAST = ("final_norm", "lm_head", "argmax")
