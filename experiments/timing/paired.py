"""Timing of one stack and its parent on a GPU: at each position and over a whole generation, with outputs checked."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from random import Random

import torch

from common.config.run_config import Timing
from common.devices.nvml import Gpu
from common.errors import Mismatched
from common.record.measurement import STOPPED
from common.stacks.stack import title
from common.validate.check import validate_queued
from common.validate.scenarios import Scenario, Start, drawn
from common.validate.snapshot import Snapshot, bit_differences
from common.validate.tolerances import ReferenceSteps
from common.validate.verdict import Mismatch
from experiments.timing.bandwidth import read_ceiling
from experiments.timing.measure import Kernel, Measurement, measure

_ceiling = cache(read_ceiling)  # the GPU's read ceiling, once per process


def time_pair(
    child: Kernel,
    parent: Kernel,
    expected: ReferenceSteps,
    timing: Timing,
    seed: int,
    on_detail: Callable[[str], None],
    beat: float | None = None,
) -> tuple[list[Measurement], Measurement | None]:
    """Measure `child` and `parent`, interleaved; a stack that is its own parent (the baseline) is measured alone.

    expected: the reference's steps with the weights of both. Returns the child's latency at every position of `timing`,
    and over a generation of `timing.tokens` tokens from position 0; no generation where a latency is STOPPED, being
    longer than `beat`. Raises Mismatched for outputs that are wrong where they are timed, see `_Timed`.
    """
    layout = child.session.layout
    alone = child.stack == parent.stack

    def run(position: int, steps: int, beat: float | None = None) -> Measurement:
        steps = min(steps, (layout.model.positions - position) // layout.tokens)
        random = Random(f"{seed} {position} {steps}")
        generator = torch.Generator().manual_seed(random.getrandbits(32))
        starts = drawn([Start(position, steps)] * 2, layout, expected.weights, generator)
        start, compared = next(starts).on(child.session), {0, random.randrange(steps), steps - 1}
        timed = [_Timed(each, expected, start, compared) for each in ([child] if alone else [child, parent])]
        kernels = [replace(each.kernel, check=each.compare) for each in timed]
        beside = None if alone else kernels[-1]

        def on_round(done: int, most: int) -> None:
            on_detail(f"position {position}, round {done} of at most {most}")

        settings = (layout.model, position, steps, timing, _ceiling(), Gpu.current(), on_round, beat)
        found = measure(kernels[0], beside, *settings)
        other = next(starts).on(child.session)
        for each in timed:
            each.confirm(other)
        return found

    latencies = [run(position, timing.steps, beat) for position in timing.at(layout.model)]
    stopped = any(latency.verdict == STOPPED for latency in latencies)
    return latencies, None if stopped else run(0, timing.tokens)


class _Timed:
    """One kernel where it is timed; its timed runs must leave the validated outputs.

    Before, a run of the same start and the same number of queued steps is validated in the same session, its first, its
    last and one other step against the reference. Every timed run begins with the same buffers. After each round the
    outputs of its last run are compared with the validated ones, bit for bit, and after the last round the whole cache
    too. Then a run with ids and a history that the kernel has not seen before is validated in its last step.
    """

    def __init__(self, kernel: Kernel, expected: ReferenceSteps, start: Scenario, compared: Collection[int]) -> None:
        self.kernel, self.expected, self.start = kernel, expected, start
        self.session = kernel.session
        self.want = self._validated(start, compared)
        self.session.reset(start.ids, start.position, start.held, len(start.ids))

    def confirm(self, other: Scenario) -> None:
        """Compare the outputs of the last timed run with the validated ones, and validate a run of another start."""
        self.compare(whole=True)
        self._validated(other, ())

    def _validated(self, start: Scenario, compared: Collection[int]) -> Snapshot:
        seen, found = validate_queued(self.session, start, compared, self.expected)
        self._refuse(found, start.name)
        return seen

    def compare(self, whole: bool = False) -> None:
        """Compare the outputs of the last timed run with the validated ones. whole: and the KV cache."""
        session = self.session
        seen = Snapshot(session.layout, session.scratch(), session.state(), session.cache if whole else None)
        note = "timed launches differ from validated ones"
        self._refuse(next(bit_differences(seen, self.want, note), None), self.start.name)

    def _refuse(self, found: Mismatch | None, where: str) -> None:
        if found:
            raise Mismatched(
                f"{title(self.kernel.stack)} is wrong where it is timed, {where}: {found}",
                "look for what depends on the position, the number of steps, the values or earlier launches",
            )
