"""Session of the Triton arm: its kernels over the layout's buffers, as the lab's judge expects one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.devices.kv_cache import CudaKvCache, KvCache
from common.devices.protocol import Session
from common.devices.ptx.device import PtxDevice
from common.devices.unwritten import NOT_WRITTEN, fill, fill_scratch
from common.errors import Crashed, LabError
from common.lazy import cupy
from common.model.layout import Layout
from experiments.engines.torch_step import captured
from experiments.engines.triton_arm.ptx import PtxStep
from experiments.engines.triton_arm.steps import TILES, Buffers, Tiles, TritonStep

MARGIN = 4096  # bytes on each side of a buffer that is written; their content must stay


class TritonSession(Session):
    """The Triton kernels, `kernels`, and their buffers; see common.devices.protocol.Session.

    weights: flat bf16, [layout.weights_size], on the CPU. device: executes the PTX of the kernels; None: a GPU, where a
    CUDA graph replays a step. Raises LabError as TritonStep and PtxStep.
    """

    def __init__(self, layout: Layout, weights: Tensor, device: PtxDevice | None, tiles: Tiles = TILES) -> None:
        self.layout, place = layout, "cpu" if device else "cuda"
        self.blocks = 1  # no meaning: each kernel has a grid of its own
        there = weights.to(place)
        slots = {tensor: layout.weight(*tensor) for tensor in layout.tensors()}
        parts = {tensor: slot.of(there) for tensor, slot in slots.items()}
        if device:  # memory of its own, so that an access beside it is found
            parts = {tensor: part.clone() for tensor, part in parts.items()}
        make = partial(_Guarded, device=place)
        self._cache, self._scratch = make(layout.cache.size, torch.bfloat16), make(layout.scratch_size, torch.float32)
        self._state = make(layout.state_size, torch.int32)
        cache = self._cache.tensor.view(layout.cache.shape)
        words = cache.view(torch.int16)
        # On a GPU in the order of torch's own work.
        self.cache = KvCache(words.numpy()) if device else CudaKvCache(cupy.asarray(words), cupy.cuda.Stream.null)
        self._state.tensor.zero_()
        step = self.kernels = TritonStep(layout, Buffers(parts, cache, self._scratch.tensor, self._state.tensor), tiles)
        self._step: Callable[[], None] = PtxStep(step, device) if device else captured(step, before=1)

    def resume(self, state: Tensor, unwritten: float = NOT_WRITTEN) -> None:
        fresh = torch.empty(self.layout.scratch_size)
        fill_scratch(fresh, self.layout, unwritten)
        self._scratch.tensor.copy_(fresh)
        self._state.tensor.copy_(state)

    def run(self, steps: int = 1, then: Any = None) -> None:
        if then is not None:
            raise LabError("the Triton arm runs alone", "leave out what runs after each token")
        at = self.layout.state["position"].offset
        self.layout.check_room(int(self._state.tensor[at]), steps)
        for _ in range(steps):
            self._step()

    def scratch(self) -> Tensor:
        """As Session.scratch. Raises Crashed if a kernel wrote beside a buffer."""
        for name in ("cache", "scratch", "state"):
            if not getattr(self, f"_{name}").intact():
                raise Crashed(f"a Triton kernel wrote outside the {name} buffer", "look for a missing mask")
        return self._scratch.tensor.cpu().clone()

    def state(self) -> Tensor:
        return self._state.tensor.cpu().clone()


class _Guarded:
    """A tensor of `size` elements with MARGIN bytes on each side, which are NaN in a float format."""

    def __init__(self, size: int, dtype: torch.dtype, device: str) -> None:
        margin = MARGIN // dtype.itemsize
        words = torch.empty(size + 2 * margin, dtype=torch.float32 if dtype.itemsize == 4 else dtype)
        fill(words)
        whole = words.view(dtype).to(device)
        self.tensor = whole[margin : margin + size]
        self._margins = whole[:margin], whole[margin + size :]
        self._before = [margin.view(torch.uint8).clone() for margin in self._margins]

    def intact(self) -> bool:
        return all(map(torch.equal, (margin.view(torch.uint8) for margin in self._margins), self._before))
