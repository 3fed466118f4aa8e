"""Short form of `make soak`: correct variants pass; hostile inputs have a folder of their own, tests/hostile."""

import random
from dataclasses import replace

import pytest

from common.errors import CompileError
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from tests.strength.soak import alarms
from tests.strength.soak.__main__ import main, result
from tests.strength.soak.alarms import WARPS, false_alarms, random_stack
from tests.strength.soak.kills import Killed


@pytest.mark.cpu
def test_correct_variants_always_pass(tmp_path, cpu_cache, seed):
    (tmp_path / "kernels").symlink_to(cpu_cache)
    assert false_alarms(1, tmp_path, seed) == []


@pytest.mark.cpu
def test_knobs_that_a_variant_refuses_are_drawn_again(tmp_path, cpu_cache, seed, monkeypatch):
    (tmp_path / "kernels").symlink_to(cpu_cache)
    slots, trial = iter([3, 4]), alarms._trial  # two teams of warps take them in turn
    monkeypatch.setattr(alarms, "_trial", lambda rng: replace(trial(rng), threads=64))
    monkeypatch.setattr(alarms, "random_stack", lambda *_: ring(next(slots)))
    assert false_alarms(1, tmp_path, seed) == []
    assert next(slots, None) is None


def test_a_text_that_does_not_compile_is_an_alarm(tmp_path, seed, monkeypatch):
    def refuse(*_):
        raise CompileError("NVRTC failed: common/kernel/asm.cuh(56): error: static assertion failed", "correct it", "")

    monkeypatch.setattr(alarms, "prove", refuse)
    assert len(false_alarms(1, tmp_path, seed)) == 1


def ring(slots):
    (stack,) = choose_stacks(read_catalog(), "stream_kv", None, {"slots": slots}, 64)
    return stack


def test_every_violation_is_counted_and_listed_in_the_notes():
    killed = Killed(parents=3, children=4, sweeps=2, lost=1, different=["vec128"])
    found = result(killed, 500, ["baseline: MISMATCH"], 240, [])
    assert [row["went wrong"] for row in found.rows] == [1, 0, 0, 1, 1, 0]
    assert (found.rows[0]["tried"], found.rows[-1]["tried"]) == ("7 kills", "240 inputs")
    assert found.notes[1:] == ["went wrong: vec128", "went wrong: baseline: MISMATCH"]


@pytest.mark.parametrize("argv", ["kills=many", "kills=0", "blows=3", "results=/dev/null/r.jsonl", "seed=-1"])
def test_a_bad_value_is_refused_in_one_line(argv, capsys):
    assert main([argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


def test_every_random_stack_is_legal_and_every_variant_is_drawn(seed):
    """A stack that lacks a variant's requirement is refused when it is made."""
    rng, catalog = random.Random(seed), read_catalog()
    stacks = [random_stack(rng, catalog, 32 * rng.choice(WARPS)) for _ in range(500)]
    assert {name for stack in stacks for name in stack.variants} == set(catalog.variants) - {"baseline"}
