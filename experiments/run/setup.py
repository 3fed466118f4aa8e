"""Setup of a run: the parts that all its stacks share, each made at its first use."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.compile.source import Source, build
from common.compile.target import number
from common.config.resolve import SYNTHETIC, check_positions
from common.config.run_config import RunConfig
from common.errors import LabError, known
from common.errors.machine import of_system
from common.lazy import torch
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import Formats, PackedWeights, load
from common.record.store import Store
from common.stacks.catalog import Catalog, read_catalog
from common.stacks.stack import Stack, choose_stacks
from experiments.run.counting import Counting
from experiments.tables.progress import Progress

if TYPE_CHECKING:  # these import torch
    from common.devices.protocol import Device
    from common.validate.tolerances import ReferenceSteps

LOCKS = Path("/tmp")  # the same for all users, whatever their TMPDIR


class Setup:
    """Configuration, device, model, weights and store of a run. A part that cannot be made raises LabError.

    show: gets notes, and each step that begins. trace: kernels stamp the begin and end of their stages.
    """

    def __init__(self, config: RunConfig, show: Progress, trace: bool = False) -> None:
        self.config, self.show, self.trace = config, show, trace
        self._exclusive = False

    def check(self, validates: bool = True) -> None:
        """Raise LabError, before any stack is compiled, unless records can be written and the weights load.

        validates: also note the devices of the validation.
        """
        self.store.check()
        device = self.config.device
        where = f"validated on {device.name}{'; races on ptx' if self.config.validation.trials == 'all' else ''}; "
        self.show.note(f"{device}; {where if validates else ''}seed {self.config.seed}")
        self.show.begin(f"load weights: {self.config.weights}")
        if self.model.large:
            self.packed.flat  # noqa: B018  written once, by this process, before workers look for it

    @property
    def catalog(self) -> Catalog:
        return read_catalog()

    @cached_property
    def store(self) -> Store:
        return Store(self.config.results)

    @cached_property
    def _weights(self) -> tuple[Model, PackedWeights]:
        """Model and packed weights; packed once, later found in the cache."""
        # Synthetic ones have the formats of the model.
        model, _, packed = self.load(None if self.config.weights == SYNTHETIC else self.config.formats)
        return model, packed

    def load(self, formats: Formats | None) -> tuple[Model, Layout, PackedWeights]:
        """The weights in other formats, as of `common.model.weights.load`."""
        config, check = self.config, partial(check_positions, self.config)
        folder = config.cache / "weights"
        return load(config.weights, config.model, config.positions, folder, config.seed, formats, check)

    @property
    def model(self) -> Model:
        """The configured model of synthetic weights; else that of the checkpoint."""
        return self.config.model if self.config.model and self.config.weights == SYNTHETIC else self._weights[0]

    @property
    def packed(self) -> PackedWeights:
        return self._weights[1]

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.model)

    @cached_property
    def device(self) -> "Device":
        """The device that the configuration chose."""
        config = self.config
        if config.ptx:
            return self._ptx(config.ptx.races)
        from common.devices.cuda import CudaDevice

        return CudaDevice()

    @cached_property
    def racing(self) -> "Device":
        """Device for trials that look for races, whatever the others run on: the PTX device with its detector."""
        return self._ptx(True)

    def _ptx(self, races: bool) -> "Device":
        from common.devices.ptx.device import PtxDevice

        folder, seed, options = self.config.cache / "kernels", self.config.seed, self.config.ptx
        if options is None:
            return PtxDevice(folder, seed=seed, races=races, note=self.show.note)
        return PtxDevice(folder, number(options.arch), seed, races, options.timeout_s, self.show.note)

    @cached_property
    def expected(self) -> "ReferenceSteps":
        """The reference's steps, computed once for all stacks; of a large model also for other processes, on disk."""
        from common.validate.tolerances import ReferenceSteps

        folder, packed = self.config.cache / "references" if self.model.large else None, self.packed
        return ReferenceSteps(self.layout, packed.flat, self.reference_device, folder, packed.sha)

    @property
    def reference_device(self) -> str:
        """Device on which torch computes the reference: a GPU if torch can use one, as a step is far faster there."""
        return "cuda" if self.config.device.name == "cuda" and torch.cuda.is_available() else "cpu"

    def choose(self, named: str | Sequence[str], knobs: Mapping[str, Any]) -> Stack:
        """The one stack of `variant=named`, or of `stack=named` for a list, with values of knobs.

        Raises LabError as `common.stacks.stack.choose_stacks` does, for a knob that no variant has, and for a name of
        several stacks.
        """
        catalog, threads = self.catalog, self.config.threads
        if not isinstance(knobs, Mapping):
            raise LabError(f"{knobs!r} gives no knobs", 'give {"ratio": "2:6"}')
        for name in knobs:
            known("knob", name, catalog.knobs)
        if not isinstance(named, str | list | tuple) or not all(isinstance(name, str) for name in named):
            raise LabError(f"{named!r} names no stack", 'give a name, or a list: ["redundant_rmsnorm", "vec128"]')
        name, listed = (named, None) if isinstance(named, str) else ("", list(named))
        stacks = choose_stacks(catalog, name, listed, knobs, threads)
        if len(stacks) > 1:
            names = ", ".join(stack.name for stack in stacks)
            raise LabError(f"{named} stands for {len(stacks)} stacks", f"name one of them, a sum as a list: {names}")
        return stacks[0]

    def source(self, stack: Stack) -> Source:
        """The flattened text of `stack` for this model and block size."""
        variants = [self.catalog.variants[name] for name in stack.variants]
        return build(variants, self.model, self.config.threads, stack.knobs, trace=self.trace)

    @cached_property
    def counting(self) -> Counting:
        """Counts of steps of the model; it may run kernels on the PTX device to count."""

        def on_count(name: str, blocks: int) -> None:
            self.show.begin(f"count {name} on {blocks} blocks")

        return Counting(self.model, self.config.threads, self.store, self.config.cache, on_count)

    @contextmanager
    def exclusive_gpu(self) -> Iterator[None]:
        """On a GPU, wait until no other run of the lab uses it: two measurements on one GPU disturb each other."""
        bus_id = self.config.device.bus_id
        if self._exclusive or bus_id is None:
            yield
            return
        folder = LOCKS if os.access(LOCKS, os.W_OK) else tempfile.gettempdir()
        path = Path(folder, f"megakernel-lab-{bus_id.replace(':', '-')}.lock")
        try:
            with suppress(FileExistsError):
                path.touch(exist_ok=False)
                path.chmod(0o444)  # whatever the umask: runs of other users lock it, too, which takes reading
            file = open(path, encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise of_system(error, "the GPU cannot be locked") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.show.wait("the GPU")
                fcntl.flock(file, fcntl.LOCK_EX)
            self._exclusive = True
            try:
                yield
            finally:
                self._exclusive = False
