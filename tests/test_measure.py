"""Interleaved measurement, with fake sessions that return given seconds: no clock is read here."""

import dataclasses
import math

import numpy as np
import pytest

from common.config.run_config import Timing
from common.errors import LabError
from common.model.shapes import Model
from experiments.timing.bandwidth import Ceiling
from experiments.timing.measure import REPEATS, Kernel, Measurement, measure

pytestmark = pytest.mark.covers

MODEL = Model("made_up", 64, 128, 2, 4, 2, 16, 256, 512, 1e6, 1e-6, True)
TIMING = Timing(warmup=20, steps=8, rounds=12, max_rounds=60, interval=0.5, tokens=32, positions=None, ladder=(1, 10))
CEILING = Ceiling("128-bit loads", best=1e12, size=1 << 30, last_level_cache=0)


class Machine:
    """One fake GPU: `slowdown(run)` multiplies the seconds of run number `run`, whichever session it belongs to."""

    def __init__(self, seed: int, noise: float = 0.0, slowdown=lambda run: 1.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.noise, self.slowdown, self.runs = noise, slowdown, 0
        self.calls: list[tuple[str, int, int]] = []

    def kernel(self, name: str, seconds: float) -> "FakeSession":
        return FakeSession(self, name, seconds)


@dataclasses.dataclass
class FakeSession:
    machine: Machine
    name: str
    seconds: float

    def time(self, steps: int, repeats: int) -> list[float]:
        self.machine.calls.append((self.name, steps, repeats))
        out = []
        for _ in range(repeats):
            self.machine.runs += 1
            noise = math.exp(self.machine.rng.normal() * self.machine.noise)
            out.append(self.seconds * noise * self.machine.slowdown(self.machine.runs))
        return out


def measure_pair(
    machine: Machine, child: float = 1e-3, parent: float = 1e-3, position: int = 10, **options
) -> Measurement:
    kernels = Kernel(("vec128",), machine.kernel("vec128", child)), Kernel((), machine.kernel("baseline", parent))
    arguments = {"steps": 8, "timing": TIMING, "ceiling": CEILING} | options
    return measure(*kernels, MODEL, position, **arguments)


def test_measurement_against_numbers_worked_by_hand():
    child = measure_pair(Machine(0), child=0.5e-3)
    assert (child.stack, child.seconds.median) == (("vec128",), 0.5e-3)
    assert (child.verdict, child.comparison.effect) == ("FASTER", -0.5)
    assert child.samples == (0.5e-3,) * TIMING.rounds
    # embed is tied: layers * ((64+2*32)*64 + 64*64 + 3*64*128) + 256*64 weights of 2 bytes; a position of the cache is
    # layers * (key and value) * 32 * 2 bytes; positions 10 to 17 read 11 to 18 of them
    weights = 2 * (2 * (128 * 64 + 64 * 64 + 3 * 64 * 128) + 256 * 64)
    assert child.bytes_per_step == weights + 2 * 2 * 32 * 2 * 14.5
    assert child.bandwidth == child.bytes_per_step / 0.5e-3
    assert child.of_ceiling == child.bandwidth / 1e12
    assert (child.position, child.steps) == (10, 8)


def test_columns_are_in_the_units_of_their_names():
    child = measure_pair(Machine(0), child=0.5e-3)
    shown = child.columns()
    assert (shown["position"], shown["steps"], shown["us a step"], shown["+- %"]) == (10, 8, 500, 0)
    assert shown["GB/s"] == shown["% of read ceiling"] * 10  # the ceiling is 1000 GB/s
    assert shown["against parent"] == "FASTER"
    assert "marks" not in shown
    marked = dataclasses.replace(child, marks=("throttled (power cap) in 1 of 2 rounds", "1 other process(es)"))
    assert marked.columns()["marks"] == "throttled (power cap) in 1 of 2 rounds, 1 other process(es)"


def test_kernels_are_interleaved_and_the_order_is_reversed_every_round():
    machine = Machine(0)
    measure_pair(machine)
    names = [name for name, _, repeats in machine.calls]
    assert machine.calls[:2] == [("baseline", 8, 3), ("vec128", 8, 3)]  # 20 steps of warm-up are three runs of 8
    rounds = list(zip(names[2::2], names[3::2], strict=True))
    assert rounds[:3] == [("baseline", "vec128"), ("vec128", "baseline"), ("baseline", "vec128")]
    assert all(call[1:] == (8, REPEATS) for call in machine.calls[2:])
    assert len(rounds) == TIMING.rounds


def test_rounds_continue_until_the_confidence_intervals_are_narrow_enough(seed):
    quiet, noisy = Machine(seed, noise=0.0005), Machine(seed, noise=0.012)
    progress: list[tuple[int, int]] = []
    assert measure_pair(quiet).verdict == "SAME", seed
    found = measure_pair(
        noisy, timing=dataclasses.replace(TIMING, max_rounds=400), on_round=lambda *now: progress.append(now)
    )
    rounds = len(found.samples)
    assert len(quiet.calls) == 2 + 2 * TIMING.rounds
    assert TIMING.rounds < rounds <= 400, seed
    assert progress == [(number, 400) for number in range(1, rounds + 1)]
    if rounds < 400:
        assert found.seconds.half_width <= 0.005, seed


def test_noise_that_stays_wide_until_max_rounds_is_unstable(seed):
    found = measure_pair(Machine(seed, noise=0.3))
    assert (found.verdict, len(found.samples)) == ("UNSTABLE", TIMING.max_rounds), seed


def test_throttling_half_way_is_unstable_although_the_pair_has_a_clear_verdict(seed):
    runs = TIMING.rounds * REPEATS
    machine = Machine(seed, noise=0.001, slowdown=lambda run: 1.0 if run // runs % 2 else 1.25)
    child = measure_pair(machine, child=0.9e-3)
    assert child.verdict == "UNSTABLE", seed
    assert child.comparison.verdict == "FASTER", seed
    assert child.comparison.effect == pytest.approx(-0.1, abs=0.01), seed


def test_a_stack_is_compared_with_itself():
    machine = Machine(0)
    first, second = (Kernel(("vec128",), machine.kernel(name, 1e-3)) for name in ("first", "second"))
    assert measure(second, first, MODEL, 10, 8, TIMING, CEILING).verdict == "SAME"
    assert {name for name, _, _ in machine.calls} == {"first", "second"}


def test_slow_drift_does_not_make_one_of_two_equal_kernels_faster(seed):
    machine = Machine(seed, noise=0.0005, slowdown=lambda run: 1 + 0.0002 * run)
    assert measure_pair(machine).comparison.verdict == "SAME", seed


def test_a_bandwidth_above_the_read_ceiling_is_implausible():
    weights = 2 * MODEL.matrix_weights
    found = measure_pair(Machine(0), child=weights / 2e12, parent=weights / 0.5e12)
    assert found.verdict == "IMPLAUSIBLE"
    cached = dataclasses.replace(CEILING, last_level_cache=10 * weights)
    found = measure_pair(Machine(0), child=weights / 2e12, parent=weights / 0.5e12, ceiling=cached)
    assert found.verdict == "FASTER"


def test_steps_end_where_the_cache_ends():
    machine = Machine(0)
    found = measure_pair(machine, position=MODEL.positions - 3)
    assert found.steps == 3
    assert {steps for _, steps, _ in machine.calls} == {3}
    assert found.bytes_per_step == MODEL.bytes_per_token(MODEL.positions - 2)


def test_outputs_are_checked_after_every_round():
    machine = Machine(0)
    seen: list[int] = []

    def wrong() -> None:
        raise LabError("token 5 is not 7", "see the record")

    def check() -> None:
        seen.append(len(machine.calls))

    baseline = Kernel((), machine.kernel("baseline", 1e-3), check)
    measure(baseline, None, MODEL, 1, 8, TIMING, CEILING)
    assert seen == list(range(2, len(machine.calls) + 1))  # the first call is the warm-up
    with pytest.raises(LabError, match="token 5"):
        measure(dataclasses.replace(baseline, check=wrong), None, MODEL, 1, 8, TIMING, CEILING)


def test_one_gpu_reading_is_kept_per_round():
    class Gpu:
        temperature = 40

        def reading(self) -> dict:
            self.temperature += 1
            return {"temperature_c": self.temperature, "throttled": []}

    found = measure_pair(Machine(0), gpu=Gpu())
    assert [reading["temperature_c"] for reading in found.readings] == list(range(41, 41 + TIMING.rounds))


def test_a_kernel_against_itself_is_faster_or_slower_in_at_most_2_of_50(seed):
    verdicts = []
    for attempt in range(50):
        verdicts.append(measure_pair(Machine(seed + attempt, noise=0.003)).verdict)
    assert sum(verdict in ("FASTER", "SLOWER") for verdict in verdicts) <= 2, (verdicts, seed)


def test_a_kernel_that_is_surely_too_slow_is_stopped_and_one_that_may_win_is_not(seed):
    """Noise of 1 % needs more rounds than the first check has; 10 % more than what is to be beaten needs no more."""
    for seconds, stopped in ((1.1e-3, True), (0.9e-3, False), (1e-3, False)):
        machine = Machine(seed, noise=0.01)
        alone = Kernel(("vec128",), machine.kernel("vec128", seconds))
        timing = dataclasses.replace(TIMING, interval=0.001)
        found = measure(alone, None, MODEL, 10, 8, timing, CEILING, beat=1.02e-3)
        assert (found.verdict == "STOPPED") == stopped
        assert len(found.samples) == (TIMING.rounds if stopped else TIMING.max_rounds)


def test_what_stopped_early_leaves_the_buffers_checked():
    def wrong() -> None:
        raise LabError("the outputs are wrong", "look")

    kernel = Kernel(("vec128",), Machine(0).kernel("vec128", 2e-3), wrong)
    with pytest.raises(LabError, match="the outputs are wrong"):
        measure(kernel, None, MODEL, 10, 8, TIMING, CEILING, beat=1e-3)
