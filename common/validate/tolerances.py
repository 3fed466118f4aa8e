"""Tolerances of a step: how far each tap of a kernel may be from the float64 reference.

A tolerance is measured: FACTOR times the largest error of RUNS plain fp32 torch runs of the same step. The runs sum in
different orders, because the error of a single run can be small by chance, for example where two large attention
scores compete. An error counts as at least one fp32 rounding of the tap's largest value: another order of summation
can cause that error in any element.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from common.cache.files import cached
from common.cache.sources import sources_sha
from common.errors import Refused
from common.model.layout import Layout
from common.stopwatch import part
from common.validate.reference import Past, Reference, Taps, digest_of
from common.validate.verdict import Tap

FACTOR = 10.0
RUNS = 4
# Largest tolerance, as a share of the tap's largest value: a wider one would accept a wrong kernel. Largest shares
# measured with synthetic weights, in scenarios without near ties: tiny 8.3e-5 (200 seeds), the mutants' model 8.4e-5
# (60 seeds, also with adversarial weights), Qwen3-0.6B 1.7e-3 (4 steps), its 28 layers with a small vocabulary 1.2e-3
# (18 steps). With near ties up to 0.06. Where fp32 overflows, the error is the whole value, and the share is FACTOR.
SHARE = 0.1
ROUNDING = 2.0**-24  # half a unit in the last place of fp32, relative
KEPT = 32  # steps in memory: all of one validation, for a few groups of kernels with equal entries

# Sources that draw and compute a step: formats, RoPE and places are the model's.
SOURCES = (
    "common/model/*.py",
    *(f"common/validate/{name}.py" for name in ("tolerances", "reference", "scenarios", "values", "verdict")),
)


def tolerances(reference: Taps, runs: Sequence[Taps]) -> dict[Tap, float]:
    """The largest allowed error of each tap (see the module docstring). The embedding is a copy: 0.

    reference: the float64 step. runs: float32 runs of the same step with the same stored entries.
    """
    allowed = {}
    for tap, want in reference.values.items():
        errors = [(run[tap] - want).abs().max() for run in runs]
        allowed[tap] = FACTOR * float(torch.stack([*errors, ROUNDING * want.abs().max()]).max())
    return allowed | {("embed", None): 0.0}


def check_tolerance(tap: Tap, allowed: float, want: Tensor, near_ties: bool) -> None:
    """Raise Refused if this tolerance is too wide to detect an error, because fp32 overflows or diverges.

    want: the float64 tap. near_ties: of the scenario; a near tie alone makes the tolerance wide, so then only a
    tolerance that is not finite is refused.
    """
    largest = float(want.abs().max())
    if isfinite(allowed) and (near_ties or allowed <= SHARE * largest):
        return
    stage, layer = tap
    place = stage if layer is None else f"{stage} of layer {layer}"
    raise Refused(
        f"these weights cannot be validated in fp32: at {place} the tolerance is {allowed:.2g}, {FACTOR:g} times the "
        f"error of plain fp32 runs, and the largest value is {largest:.2g}; at most {SHARE:.0%} of it is allowed",
        "fp32 overflows or diverges there: rescale the weights, or check the checkpoint for damage",
    )


class ReferenceSteps:
    """Reference steps and their tolerances, for one model with its weights (flat bf16, [layout.weights_size]).

    The KEPT most recently used steps stay in memory. All kernels of a sweep decode the same scenarios, and most store
    the same entries bit for bit, so they share steps; at full size a reference step takes far longer than the kernel.

    device: of torch. folder: of steps shared with other processes, keyed by all inputs, the weights by `weights_sha`;
    None: only in memory.
    """

    def __init__(
        self, layout: Layout, weights: Tensor, device: str = "cpu", folder: Path | None = None, weights_sha: str = ""
    ) -> None:
        self.weights, self.device, self._folder = weights, device, folder
        self._about = f"{layout.model} {weights_sha} {device} {torch.__version__} {sources_sha(*SOURCES)}".encode()
        if device == "cuda":
            torch.set_float32_matmul_precision("highest")  # some images allow TF32, which is not fp32
        with part("reference"):
            there = weights.to(device)
            self._references = [
                Reference(layout, there, device=device),
                *(Reference(layout, there, torch.float32, 1 + i, device) for i in range(RUNS)),
            ]
        self._recent: OrderedDict[bytes, tuple[Taps, dict[Tap, float]]] = OrderedDict()

    def step(self, token: int, past: Past, stored: Tensor) -> tuple[Taps, dict[Tap, float]]:
        """The float64 step after `past` and the error allowed in each tap; the rest as in Reference.step."""
        position = past.positions
        name = digest_of(f"{token} {position} ".encode(), past.digest, stored)
        if name in self._recent:
            self._recent.move_to_end(name)
            return self._recent[name]

        def compute() -> tuple[Taps, dict[Tap, float]]:
            reference, *runs = (each.step(token, position, past.pieces, stored) for each in self._references)
            return reference, tolerances(reference, runs)

        with part("reference"):
            if self._folder:
                sha = hashlib.sha256(self._about + name).hexdigest()
                self._recent[name] = unpacked(cached(self._folder / f"{sha}.taps", lambda: packed(*compute())))
            else:
                self._recent[name] = compute()
        if len(self._recent) > KEPT:
            self._recent.popitem(last=False)
        return self._recent[name]


def packed(taps: Taps, allowed: dict[Tap, float]) -> bytes:
    """A step as a file: safetensors, numbered in the order of computation."""
    tensors = {f"{at:04} {stage} {layer}": taps[stage, layer] for at, (stage, layer) in enumerate(taps.values)}
    tensors["stored"] = taps.stored
    tensors["token"] = torch.tensor(taps.token)
    tensors["allowed"] = torch.tensor([allowed[tap] for tap in taps.values], dtype=torch.float64)
    return save({name: tensor.clone() for name, tensor in tensors.items()})  # no two may share memory


def unpacked(content: bytes) -> tuple[Taps, dict[Tap, float]]:
    """The inverse of `packed`."""
    tensors = load(content)
    stored, token, allowed = (tensors.pop(name) for name in ("stored", "token", "allowed"))
    values: dict[Tap, Tensor] = {}
    for name in sorted(tensors):
        _, stage, layer = name.split()
        values[stage, None if layer == "None" else int(layer)] = tensors[name]
    return Taps(values, stored, int(token)), dict(zip(values, allowed.tolist(), strict=True))
