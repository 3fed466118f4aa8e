"""Samples of the bandwidth probes, on a machine with a clock that rises while it works."""

from experiments.timing.bandwidth import RUNS, SAMPLE, settled


class Machine:
    """A pass takes `seconds` at full speed, and four times as long until the machine has worked for `rise` seconds."""

    def __init__(self, seconds: float, rise: float) -> None:
        self.seconds, self.rise, self.worked = seconds, rise, 0.0
        self.launches: list[tuple[int, float]] = []

    def launch(self, passes: int) -> float:
        took = passes * self.seconds * (4 if self.worked < self.rise else 1)
        self.worked += took
        self.launches.append((passes, took))
        return took


def test_samples_are_long_and_begin_when_the_clocks_have_settled():
    machine = Machine(seconds=0.5e-3, rise=0.4)
    samples = settled(machine.launch)
    assert samples == [machine.launches[-1][1] / machine.launches[-1][0]] * RUNS
    assert samples[0] == 0.5e-3
    assert all(took >= SAMPLE for _, took in machine.launches[-RUNS:])
    assert all(passes % 2 for passes, _ in machine.launches)  # an even number of them would cancel the xor


def test_a_pass_longer_than_a_sample_is_taken_once():
    machine = Machine(seconds=3 * SAMPLE, rise=0)
    assert settled(machine.launch) == [3 * SAMPLE] * RUNS
    assert {passes for passes, _ in machine.launches} == {1}
