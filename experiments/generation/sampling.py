"""Sampling on the device: the source of its kernel, and its settings as words of the state."""

import math
from pathlib import Path

import numpy as np
import torch

from common.compile.source import Source, kernel_text
from common.model.layout import Layout
from common.model.shapes import Model
from common.stacks.variant import LOWEST_ARCH
from experiments.generation.request import Sampling

KERNEL = Path(__file__).with_name("sample.cu")
SETTINGS = {"scale": 0, "top_k": 1, "top_p": 2, "seed": 4, "penalty": 6, "mark": 7}  # words of the state slot


def source(model: Model) -> Source:
    """The kernel that samples, for a session beside that of a stack."""
    threads = min(1024, 32 * math.ceil(model.vocab / 1024))
    settings = (
        f"namespace setting_at {{ {' '.join(f'constexpr int {name} = {at};' for name, at in SETTINGS.items())} }}"
    )
    entry = [f"KERNEL_ENTRY(Sample, {threads}, 1)"]
    text = kernel_text(Layout(model), threads, [KERNEL], entry, constants=[settings])
    return Source(("sample",), model, threads, {}, "plain", 1, 1, LOWEST_ARCH, text)


def needed(sampling: Sampling) -> bool:
    """True if another token than that of argmax may be chosen."""
    return sampling.temperature > 0 or sampling.repetition_penalty != 1


def write_settings(state: torch.Tensor, layout: Layout, sampling: Sampling, mark: int) -> None:
    """Write the settings into the state. mark: of the ids of this request, another one for each."""
    top_p = 2**64 - 1 if sampling.top_p == 1 else int(sampling.top_p * 2**64)
    scale = math.log2(math.e) / sampling.temperature if sampling.temperature else 0.0
    words = torch.zeros(layout.state["sampling"].size, dtype=torch.int32)
    for name, value in (("scale", scale), ("penalty", sampling.repetition_penalty)):
        words[SETTINGS[name]] = int(np.float32(value).view(np.int32))
    for name, value in (("top_p", top_p), ("seed", sampling.seed)):
        words[SETTINGS[name] : SETTINGS[name] + 2] = torch.from_numpy(np.array([value], np.uint64).view(np.int32))
    words[SETTINGS["top_k"]] = sampling.top_k if sampling.top_k < layout.model.vocab else 0
    words[SETTINGS["mark"]] = mark
    slot = layout.state["sampling"]
    state[slot.offset : slot.offset + slot.size] = words
