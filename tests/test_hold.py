"""Times of queued launches on a machine with two clocks: the host's, which queues, and the GPU's, which runs."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from common.devices.hold import PER_LAUNCH, QUEUE, Hold
from common.errors import Refused

pytestmark = pytest.mark.covers

RUNS = 2_000  # nanoseconds of a launch on the GPU


class Machine:
    """The part of CuPy that Hold uses. per_launch: nanoseconds in which this host queues one launch."""

    def __init__(self, per_launch: int, synchronous: bool = False) -> None:
        self.host, self.gpu = 0, 0
        self.per_launch, self.synchronous, self.held = per_launch, synchronous, 0
        machine = self

        class Event:
            def record(self) -> None:
                self.at = machine.gpu = max(machine.gpu, machine.host)

            @property
            def done(self) -> bool:
                return machine.host >= self.at

        self.cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda start, stop: (stop.at - start.at) / 1e6)
        self.uint64 = np.uint64

    def RawModule(self, code: str, options: tuple[str, ...]) -> SimpleNamespace:  # noqa: N802  CuPy's name
        assert "globaltimer" in code
        return SimpleNamespace(get_function={"hold": self._hold}.get)

    def _hold(self, grid, block, arguments) -> None:
        self.held += 1
        self.launch(int(*arguments))

    def launch(self, nanoseconds: int = RUNS) -> None:
        self.host += self.per_launch
        self.gpu = max(self.gpu, self.host) + nanoseconds
        if self.synchronous:
            self.host = self.gpu

    @contextmanager
    def finished(self):
        yield
        self.host = max(self.host, self.gpu)

    def seconds(self, repeats: int, launches: int, hold: Hold | None = None) -> list[float]:
        def run() -> None:
            for _ in range(launches):
                self.launch()

        return (hold or Hold(self)).seconds(run, repeats, launches, self.finished, before=self.launch)


@pytest.mark.parametrize("per_launch", [100, 6_000, 3 * PER_LAUNCH, 40 * PER_LAUNCH])
def test_time_of_a_launch_is_the_gpus_and_not_the_hosts(per_launch):
    machine = Machine(per_launch)
    assert machine.seconds(3, 225) == [pytest.approx(225 * RUNS / 1e9)] * 3
    assert (machine.held > 1) == (per_launch > PER_LAUNCH)


def test_a_hold_that_was_too_short_is_longer_the_next_time():
    machine = Machine(per_launch=3 * PER_LAUNCH)
    hold, held = Hold(machine), []
    for _ in range(2):
        assert machine.seconds(3, 20, hold) == [pytest.approx(20 * RUNS / 1e9)] * 3
        held.append(machine.held)
    assert held == [2, 3]


def test_more_launches_than_the_queue_holds_are_timed_once():
    machine = Machine(per_launch=RUNS // 2)
    assert machine.seconds(1, 2 * QUEUE) == [pytest.approx(2 * QUEUE * RUNS / 1e9)]
    assert machine.held == 1


def test_synchronous_launches_have_no_time():
    with pytest.raises(Refused, match="unset CUDA_LAUNCH_BLOCKING"):
        Machine(6_000, synchronous=True).seconds(1, 10)


def test_the_hold_reads_the_gpus_clock_and_is_not_unrolled():
    from common.compile.nvrtc import compile_cubin
    from common.compile.sass import resources
    from common.devices.hold import TEXT

    found = resources(compile_cubin(TEXT, "sm_90", "hold.cu"), "sm_90", "hold")
    assert (found.count("NANOSLEEP"), found.spill_bytes) == (1, 0)
