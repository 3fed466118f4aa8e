"""Sampling on the device: the source of its kernel, and its settings as words of the state."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from common.compile.source import Source, kernel_text
from common.model.layout import Layout
from common.model.stages import MAX_THREADS, WARP
from common.stacks.variant import LOWEST_ARCH
from experiments.generation.request import Sampling

KERNEL = Path(__file__).with_name("sample.cu")
WORDS = np.dtype(  # settings as the kernel reads them from the state
    [("scale", "f4"), ("top_k", "i4"), ("top_p", "u8"), ("seed", "u8"), ("penalty", "f4"), ("mark", "i4")]
)


def source(stack: Source) -> Source:
    """Kernel that samples from the logits of a step of `stack`, for a second session beside the stack's."""
    model = stack.model
    threads = min(MAX_THREADS, WARP * math.ceil(model.vocab / 1024))
    offsets = [f"constexpr int {name} = {field[1] // 4};" for name, field in (WORDS.fields or {}).items()]
    entry = [f"KERNEL_ENTRY(Sample, {threads}, 1)"]
    constants = ["namespace setting_at {", *offsets, "}", f"constexpr int tokens_per_step = {stack.tokens_per_step};"]
    text = kernel_text(stack.layout, threads, [KERNEL], entry, constants)
    kernel = Source(("sample",), model, threads, {}, "plain", 1, 1, LOWEST_ARCH, text)
    return replace(kernel, scratch=stack.scratch, tokens_per_step=stack.tokens_per_step)


def needed(sampling: Sampling) -> bool:
    """True if a token other than the argmax may be chosen."""
    return sampling.temperature > 0 or sampling.repetition_penalty != 1


def write_settings(state: torch.Tensor, layout: Layout, sampling: Sampling, mark: int) -> None:
    """Write the settings into the state. mark: marks the ids seen in this request; each request has its own."""
    top_p = 2**64 - 1 if sampling.top_p == 1 else int(sampling.top_p * 2**64)
    scale = math.log2(math.e) / sampling.temperature if sampling.temperature else 0.0
    top_k = sampling.top_k if sampling.top_k < layout.model.vocab else 0
    words = np.array([(scale, top_k, top_p, sampling.seed, sampling.repetition_penalty, mark)], WORDS).view(np.int32)
    at = layout.state["sampling"].offset
    state[at : at + len(words)] = torch.from_numpy(words)
