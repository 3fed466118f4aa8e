"""Kernels that are wrong only where they are timed, on the stand-in: each is found, and has no figure.

The kernels are sound; what a launch leaves is made wrong from outside, where the launch begins as the test says.
"""

import ctypes
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import pytest
import torch
from composed import Composed
from standin import installed

from common.config.run_config import Timing
from common.errors import Mismatched
from common.model.layout import Layout
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import scenarios
from common.validate.tolerances import ReferenceSteps
from experiments.timing.measure import REPEATS, Kernel

pytestmark = pytest.mark.cpu
STEPS, ROUNDS = 2, 2
WARMUP = 1  # runs of STEPS steps before the first round
SIGN = 0x8000  # the sign bit of a bf16


@dataclass(frozen=True)
class Begun:
    """A launch before it runs: state words and the kernel's own argument.

    number: of this kernel's launches so far. key: the first one of the cache. buffers: the bytes of all of them.
    """

    number: int
    steps: int
    position: int
    prompt_length: int
    key: torch.Tensor
    buffers: bytes


class Launches:
    """Every launch of a kernel of this model: `wrong(begun)` says which of them leave a wrong entry."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.begun = layout, []
        self.wrong: Callable[[Begun], bool] = lambda begun: False

    def around(self, launch: Callable) -> Callable:
        def launch_(program, name, grid, block, shared, parameters, *more):
            if name != "decode":
                return launch(program, name, grid, block, shared, parameters, *more)
            layout = self.layout
            words, entries, results = layout.state_size, layout.cache.size, layout.scratch_size
            _, cache, scratch, state, _, last = struct.unpack("<5Qi", parameters)
            state_, cache_, scratch_ = (
                (kind * size).from_address(address)
                for kind, size, address in (
                    (ctypes.c_int32, words, state),
                    (ctypes.c_uint16, entries, cache),
                    (ctypes.c_uint32, results, scratch),
                )
            )
            position, prompt = (state_[layout.state[name].offset] for name in ("position", "prompt_length"))
            buffers = bytes(state_) + bytes(cache_) + bytes(scratch_)
            key = torch.tensor(cache_[: layout.model.head_dim], dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
            begun = Begun(len(self.begun) + 1, last, position, prompt, key.double(), buffers)
            self.begun.append(begun)
            ended = launch(program, name, grid, block, shared, parameters, *more)
            if self.wrong(begun):
                cache_[position * layout.model.head_dim] ^= SIGN
                scratch_[0] ^= 1
            return ended

        return launch_


@pytest.fixture
def gpu(cpu_cache, monkeypatch, tiny):
    """A CudaDevice on a fresh stand-in, and its launches."""
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    launches = Launches(Layout(tiny))
    with installed():
        from standin_gpu.executing import Program

        from common.devices.cuda import CudaDevice

        monkeypatch.setattr(Program, "launch", launches.around(Program.launch))
        yield CudaDevice(), launches


@pytest.fixture
def synthetic_norm(tiny, cpu_cache, seed) -> torch.Tensor:
    """The scale of keys in the first layer."""
    slot, weights = Layout(tiny).weight("k_norm", 0), load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    return weights[slot.offset : slot.offset + slot.size].double()


@pytest.fixture
def timed(gpu, tiny, cpu_cache, seed):
    """timed(wrong, names=): validate a kernel, which passes, then time it at a position that no validation has had.

    wrong(position, number of launches before, begun): of the launches from then on.
    """
    device, launches = gpu
    weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    expected = ReferenceSteps(Layout(tiny), weights)

    def timed_(wrong: Callable[[int, int, Begun], bool], names: str = "") -> None:
        from experiments.timing.paired import time_pair

        source = Composed(tuple(names.split())).source(tiny)
        validated = list(scenarios(tiny, seed, weights, quick=True))
        used = {each.position + step for each in validated for step in range(-STEPS, each.steps)}
        at = max(set(range(1, tiny.positions - STEPS)) - used)
        launches.wrong, launches.layout = lambda begun: wrong(at, 0, begun), source.layout
        with closing(device.session(device.compile(source), weights, 3)) as session:
            assert validate(session, weights, validated, seed, reference=expected).passed
            before = len(launches.begun)
            launches.wrong = lambda begun: wrong(at, before, begun)
            timing = Timing(WARMUP, STEPS, ROUNDS, ROUNDS, 0.5, 1, (at,), ())
            one = Kernel(source.stack, session)
            time_pair(one, one, expected, timing, seed, lambda text: None)

    return timed_


# Launches of the run that is validated and of the timed ones, to the end of the first round.
ROUND_1 = (1 + WARMUP + REPEATS) * STEPS


@pytest.mark.parametrize(
    ("wrong", "names", "said"),
    [
        (lambda at, before, begun: begun.position == at, "", "key|value"),
        (lambda at, before, begun: begun.position == at + STEPS - 1, "", "key|value"),
        (lambda at, before, begun: begun.steps == STEPS, "multi_step", "key|value|embed"),
        (lambda at, before, begun: begun.prompt_length == at + 1, "", "key|value"),
        (lambda at, before, begun: before and begun.number > before + ROUND_1, "", "timed launches differ"),
        (
            lambda at, before, begun: before and 0 <= before + ROUND_1 - begun.number < STEPS,
            "",
            "timed launches differ",
        ),
    ],
    ids=["first position", "last position", "steps", "prompt length", "from a launch on", "in one round"],
)
def test_what_is_wrong_only_where_it_is_timed_is_found(timed, wrong, names, said):
    with pytest.raises(Mismatched, match=rf"is wrong where it is timed, .* steps from position \d+: .*(?:{said})"):
        timed(wrong, names)


def test_a_history_that_validation_has_not_shown_is_no_disguise(timed):
    shown = set()

    def wrong(at: int, before: int, begun: Begun) -> bool:
        if not before:
            shown.add(begun.key.numpy().tobytes())
        return begun.key.numpy().tobytes() not in shown

    with pytest.raises(Mismatched, match=r"key|value"):
        timed(wrong)


def test_timed_histories_are_drawn_as_those_of_the_validation(timed, synthetic_norm):
    """Keys have the length that the model's own k_norm gives them: a kernel cannot tell which is which by it."""
    lengths = []

    def wrong(at: int, before: int, begun: Begun) -> bool:
        if before and begun.position == at:
            lengths.append(float((begun.key / synthetic_norm).square().mean().sqrt()))
        return False

    timed(wrong)
    assert lengths
    assert lengths == pytest.approx([1] * len(lengths), rel=0.02)


def test_what_is_wrong_only_after_timing_is_found(timed, monkeypatch):
    from experiments.timing import paired

    over, measure = [], paired.measure
    monkeypatch.setattr(paired, "measure", lambda *given: [measure(*given), over.append(True)][0])
    with pytest.raises(Mismatched, match=r"key|value|embed") as caught:
        timed(lambda at, before, begun: bool(over))
    assert "timed launches" not in str(caught.value)


def test_no_timed_run_can_be_told_from_the_validated_one(timed, gpu):
    """Each begins with the same bytes in all buffers; runs of the last, other start begin with other ones."""
    starts = []

    def begins(at: int, before: int, begun: Begun) -> bool:
        if before and begun.position == at and begun.prompt_length == at + 1:
            starts.append(begun.buffers)
        return False

    timed(begins)
    *same, other = starts
    assert len(same) == 1 + WARMUP + ROUNDS * REPEATS
    assert len(set(same)) == 1
    assert other != same[0]
