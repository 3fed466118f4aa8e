"""Validation of a stack as a run does it: which trials, in what, on which device, and what becomes of their answers."""

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from common.errors import CompileError, Crashed, LabError, Refused
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.prove import OLD_RING, expected, text_of
from common.validate.scenarios import drawn
from common.validate.trials import GIVEN, HIGH, LOW, TRIALS, chosen, not_exercised
from common.validate.verdict import Mismatch, Verdict, Worst
from experiments.run import steps
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.tables.progress import Progress

RIGHT = Verdict(None, Worst("embed", None, 0.0, 0.0), steps=7, seed=3)
WRONG = replace(RIGHT, mismatch=Mismatch("qkv", 0, (1,), 1.0, 2.0, 0.1))
USER = ("model=qwen2_tiny", "model.hidden=128", "model.intermediate=160", "model.head_dim=16", "format=int4:32")
CATALOG = read_catalog()
BY_NAME = {trial.name: trial for trial in TRIALS}
RACES = [trial for trial in TRIALS if trial.races]


@pytest.fixture
def stack(configured, tmp_path, monkeypatch):
    """stack(prove, *overrides): a stack whose trials are judged by `prove(trial)`, and what its run says."""

    def make(prove: Callable[..., Verdict], *overrides: str) -> tuple[LabStack, io.StringIO]:
        paths = [f"cache={tmp_path}", f"results={tmp_path}/r.jsonl"]
        config = configured("device=ptx", *USER, "variant=vec128", "validate=full", *paths, *overrides)
        said = io.StringIO()

        def judge(device, catalog, stack, trial, *rest, **options) -> Verdict:
            return prove(device, stack, trial, *rest)

        monkeypatch.setattr(steps, "prove", judge)
        return LabStack(Setup(config, Progress(said)), config.stacks[0]), said

    return make


@pytest.mark.parametrize("amount", ["plain", "all"])
def test_each_trial_has_the_users_traits_formats_and_seed(stack, amount):
    tried = []

    def prove(device, variants, trial, cache, seed):
        model = trial.model
        assert (model.format, model.head_format, model.kv_format) == ("int4:32", "int8", "fp8")
        assert (model.qk_norm, model.qkv_bias, model.rope) == (False, True, "default")
        assert device.races == trial.races
        assert variants == lab.stack
        assert seed == RIGHT.seed
        assert cache == lab.setup.config.cache
        tried.append(trial.name)
        return replace(RIGHT, steps=2)

    lab, _ = stack(prove, f"validate.trials={amount}", "head_format=int8", "kv_format=fp8")
    verdict = lab._tried(RIGHT, "")
    assert tried == [trial.name for trial in chosen(amount)]
    assert verdict.passed
    assert verdict.steps == RIGHT.steps + 2 * len(tried)
    assert set(verdict.not_exercised) == {trial.covers for trial in TRIALS if trial.name not in tried}


def test_the_first_trial_that_finds_something_is_the_last_one(stack):
    third, tried = chosen("all")[2].name, []

    def prove(device, variants, trial, *_):
        tried.append(trial.name)
        return WRONG if trial.name == third else RIGHT

    verdict = stack(prove)[0]._tried(RIGHT, "")
    assert (verdict.status, verdict.mismatch, tried[-1]) == ("MISMATCH", WRONG.mismatch, third)
    assert len(verdict.not_exercised) == len(TRIALS) - 3


def test_a_stack_that_is_wrong_on_its_own_model_has_no_trial(stack):
    verdict = stack(lambda *_: pytest.fail("tried"))[0]._tried(WRONG, "")
    assert verdict.mismatch == WRONG.mismatch
    assert len(verdict.not_exercised) == len(TRIALS)


@pytest.mark.parametrize("error", [Crashed, CompileError, Refused])
@pytest.mark.parametrize("races", [True, False])
def test_what_a_trial_raises_is_the_answer(stack, error, races):
    """A race ends its launch as Crashed."""

    def prove(device, variants, trial, *_):
        if trial.races == races:
            raise error("a cause", "a remedy")
        return RIGHT

    with pytest.raises(error, match="a cause"):
        stack(prove)[0]._tried(RIGHT, "")


def test_where_the_ptx_device_does_not_run_a_full_validation_says_so(stack):
    def prove(device, variants, trial, *_):
        if trial.races:
            raise LabError("NVRTC is not installed", "install it")
        return RIGHT

    lab, said = stack(prove)
    verdict = lab._tried(RIGHT, "")
    assert verdict.passed
    assert verdict.not_exercised == tuple(trial.covers for trial in RACES)
    assert "not looked for races: NVRTC is not installed; install it" in said.getvalue()


@pytest.mark.parametrize(("variant", "equal"), [("l2_prefetch", True), ("vec128", False)])
def test_every_seed_is_tried_until_one_finds_something(stack, variant, equal, monkeypatch):
    """Beside the parent, if the variant must be equal to it."""
    asked = []

    def validate(session, weights, starts, seed, reference, on_step, parent):
        asked.append((seed, [start.ids for start in starts], parent))
        return replace(WRONG if len(asked) == 3 else RIGHT, seed=seed)

    lab, _ = stack(lambda *_: RIGHT, "validate.trials=none", "validate.seeds=4", "seed=11", f"variant={variant}")
    monkeypatch.setattr(steps, "validate", validate)
    session = type("Opened", (), {"layout": lab.setup.layout, "close": lambda self: None})()
    monkeypatch.setattr(LabStack, "session", lambda self: session)
    verdict = lab._validate(session)
    assert (verdict.mismatch, verdict.seed) == (WRONG.mismatch, 13)
    assert [(seed, parent is not None) for seed, _, parent in asked] == [(11, equal), (12, equal), (13, equal)]
    assert len({str(ids) for _, ids, _ in asked}) == 3


def stack_of(name: str) -> Stack:
    return choose_stacks(CATALOG, name, None, {}, 256)[0]


NAMES = (
    "wide; several turns; many blocks; long prompt; negative logits; low scores; large gates; small inputs; half way; "
    "twins; ties; equal rows; late maximum; wide, low scores; wide, knobs low; wide, knobs high; large heads; long; "
    "many words; square; "
    "least; many tokens; 65 blocks; 132 blocks; 264 blocks; 300 blocks; races, knobs low; races, knobs as given"
)


def test_no_trial_is_missing_from_a_full_or_a_plain_validation():
    names = NAMES.split("; ")
    assert [trial.name for trial in chosen("all")] == names
    assert [trial.name for trial in chosen("plain")] == names[1:13]


@pytest.mark.parametrize("name", [name for name, v in CATALOG.variants.items() if v.loader_warps or v.requires])
def test_every_counter_of_a_ring_is_old_where_a_trial_says_so(name):
    text = text_of(CATALOG, stack_of(name), BY_NAME["square"]).text
    loader = "loader_warps = 1;" in text
    assert text.startswith(f"#define {OLD_RING} ") == loader
    assert not re.search(r"\b(tile|jobs) = 0\b|\btile\[.*\] = 0\b", text)


def test_the_knobs_of_a_trial_are_those_of_the_stack_or_the_ends_of_their_ranges():
    stack, trial = stack_of("warp_split"), BY_NAME["wide"]  # 2:6 of 8 warps is about 1:2 of 3
    assert trial.knobs == GIVEN
    assert "producers = 1; constexpr int consumers = 2" in text_of(CATALOG, stack, trial).text
    for which, constant in ((LOW, "chunk = 16;"), (HIGH, "chunk = 16384;")):
        some = next(each for each in TRIALS if each.knobs == which)
        assert constant in text_of(CATALOG, stack_of("split_kv"), some).text


def test_what_a_validation_leaves_out_is_what_no_trial_of_it_covers():
    assert not_exercised(chosen("all")) == ()
    plain = not_exercised(chosen("plain"))
    assert BY_NAME["many words"].covers in plain
    assert len(not_exercised(chosen("none"))) == len(TRIALS) > len(plain)


def test_trials_fit_their_models_and_are_named_once(cpu_cache, seed):
    assert len(BY_NAME) == len(TRIALS)
    for trial in TRIALS:
        layout, weights, _ = expected(trial.model, trial.weights, cpu_cache, seed)
        for start, scenario in zip(
            trial.starts, drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed)), strict=True
        ):
            layout.check_room(start.position, start.steps)
            assert len(scenario.ids) == start.position + start.given
            assert start.barriers % 2 == 0
