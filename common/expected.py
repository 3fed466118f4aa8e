"""What a step should leave: the reference's taps, and how far a kernel may be from each.

A tolerance is measured, not guessed: it is FACTOR times the error of plain fp32 torch runs of the same step. One run
is not enough: where one rounding decides (two large scores that compete), a run is right by luck now and then.
So RUNS of them, which sum in different orders, and the largest error counts. No error counts as smaller than one
fp32 rounding of the tap's largest value, since another order of the same operations may cost that anywhere.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from common.layout import Layout
from common.model import Model
from common.reference import Reference, Taps

FACTOR = 10.0
RUNS = 4
ROUNDING = 2.0**-24  # half a unit in the last place of fp32, relative
KEPT = 32  # steps: those of a kernel's whole proof, for the few families of kernels that agree in every bit
LARGE = 10_000_000  # matrix weights from which a step of the reference, and of a kernel on a CPU, takes seconds

Tap = tuple[str, int | None]


def tolerances(truth: Taps, runs: Sequence[Taps]) -> dict[Tap, float]:
    """The largest error allowed in each tap: see the top of this file. The embedding is copied, so it is exact.

    truth: the float64 step; runs: float32 runs of the same step with the same stored entries.
    """
    allowed = {}
    for tap, want in truth.values.items():
        errors = [(run[tap] - want).abs().max() for run in runs]
        allowed[tap] = FACTOR * float(torch.stack([*errors, ROUNDING * want.abs().max()]).max())
    return allowed | {("embed", None): 0.0}


class Expected:
    """Steps of one model with its weights (flat bf16, [layout.weights_size]).

    Kernels of one sweep begin at the same starts, and most of them store the same entries to the last bit, so the
    newest steps are kept: at full size the reference takes far longer than the kernel that it judges.
    """

    def __init__(self, model: Model, layout: Layout, weights: Tensor) -> None:
        self.weights = weights
        self._references = [
            Reference(model, layout, weights),
            *(Reference(model, layout, weights, torch.float32, 1 + i) for i in range(RUNS)),
        ]
        self._known: OrderedDict[bytes, tuple[Taps, dict[Tap, float]]] = OrderedDict()

    def step(self, token: int, position: int, cache: Tensor, stored: Tensor) -> tuple[Taps, dict[Tap, float]]:
        """The float64 step and the error allowed in each tap; arguments as those of Reference.step."""
        name = _digest(token, position, cache[:, :, :, :position], stored)
        if name in self._known:
            self._known.move_to_end(name)
            return self._known[name]
        truth, *runs = (each.step(token, position, cache, stored) for each in self._references)
        self._known[name] = truth, tolerances(truth, runs)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return self._known[name]


def _digest(token: int, position: int, history: Tensor, stored: Tensor) -> bytes:
    """Of all that decides a step beside the weights."""
    found = hashlib.blake2b(f"{token} {position}".encode())
    for tensor in (history, stored):
        found.update(tensor.contiguous().view(torch.uint8).numpy())
    return found.digest()
