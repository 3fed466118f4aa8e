"""Proof on trials with a device that runs no kernel: what is built and compared, and the values of a plain validation.

A session of NumPy is right on each trial, so tolerances suit adversarial values; each kind of value finds its fault.
"""

import pytest
from fake_session import FakeSession

from common.compile.source import Source
from common.errors import LabError
from common.model.layout import Layout
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks, equals_parent
from common.validate.prove import prove, text_of
from common.validate.trials import TRIALS, Trial

CATALOG = read_catalog()
PLAIN = [trial for trial in TRIALS if trial.plain]


class FakeDevice:
    """Sessions of NumPy in place of kernels. opened: what each was opened with."""

    def __init__(self, *faults: str) -> None:
        self.faults, self.opened = faults or ("",), []

    def compile(self, source: Source) -> Source:
        return source

    def session(self, program: Source, weights, blocks: int) -> FakeSession:
        assert weights.numel() == Layout(program.model).weights_size
        fault = self.faults[len(self.opened) % len(self.faults)]
        self.opened.append((program, blocks))
        return FakeSession(program.model, weights, fault)


def stack_of(name: str) -> Stack:
    return choose_stacks(CATALOG, name, None, {}, 256)[0]


def trial_of(name: str) -> Trial:
    return next(trial for trial in TRIALS if trial.name == name)


@pytest.mark.parametrize("trial", PLAIN, ids=lambda trial: trial.name)
def test_a_correct_session_passes_plain_trials(trial, cpu_cache, seed):
    verdict = prove(FakeDevice(), CATALOG, stack_of("baseline"), trial, cpu_cache, seed)
    assert verdict.passed, verdict
    assert verdict.steps == sum(start.steps for start in trial.starts)
    assert verdict.seed == seed


@pytest.mark.parametrize(
    ("name", "fault", "stage"),
    [
        ("late maximum", "softmax without maximum", "attention"),
        ("half way", "half way rounds up", "value"),
        ("ties", "tie to the higher id", "argmax"),
        ("equal rows", "tie to the higher id", "argmax"),
        ("small inputs", "eps", "input_norm"),
        ("many blocks", "rope position", "rope"),
        ("long prompt", "prompt overwritten", "state"),
    ],
)
def test_a_trial_finds_what_it_is_for(name, fault, stage, cpu_cache, seed):
    found = prove(FakeDevice(fault), CATALOG, stack_of("baseline"), trial_of(name), cpu_cache, seed).mismatch
    assert found, f"{fault} passed, seed {seed}"
    assert found.stage == stage, found
    assert found.note.endswith(f", trial: {name}")


@pytest.mark.parametrize("name", ["l2_prefetch", "vec128"])
def test_the_parent_is_compared_where_bits_must_be_equal_and_is_not_edited(name, cpu_cache, seed):
    stack, trial, device = stack_of(name), trial_of("equal rows"), FakeDevice("", "nondeterministic")
    verdict = prove(device, CATALOG, stack, trial, cpu_cache, seed, lambda text: f"// edited\n{text}")
    assert [blocks for _, blocks in device.opened] == [trial.blocks] * len(device.opened)
    own, *parents = [program.text for program, _ in device.opened]
    assert own == f"// edited\n{text_of(CATALOG, stack, trial).text}"
    equal = equals_parent(stack, CATALOG)
    below = Stack(stack.name, stack.parent, stack.parent, stack.knobs)
    assert parents == [text_of(CATALOG, below, trial).text] * equal
    assert verdict.passed != equal
    assert not equal or "differs from its parent" in verdict.mismatch.note


def test_an_error_has_the_name_of_its_trial(cpu_cache, seed):
    class Broken(FakeDevice):
        def compile(self, source):
            raise LabError("no compiler", "install one")

    with pytest.raises(LabError, match=r"^no compiler \(trial: square\)"):
        prove(Broken(), CATALOG, stack_of("baseline"), trial_of("square"), cpu_cache, seed)
