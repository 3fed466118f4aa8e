"""Trials: correct stacks pass them, and each finds a fault that only its shape, values or age shows."""

from dataclasses import replace

import pytest
import torch
from sampled import sampled

from common.devices.host import HostDevice
from common.errors import CompileError, Hung
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import expected, prove, text_of
from common.validate.scenarios import Start, drawn
from common.validate.trials import GIVEN, HIGH, LOW, TRIALS, chosen, not_exercised

pytestmark = pytest.mark.host
CATALOG = read_catalog()
BY_NAME = {trial.name: trial for trial in TRIALS}
STACKS = choose_stacks(CATALOG, "catalog", None, {}, 256)


def stack_of(name: str):
    return choose_stacks(CATALOG, name, None, {}, 256)[0]


@pytest.mark.parametrize(
    ("stack", "trial"),
    sampled([(stack, trial) for stack in STACKS for trial in TRIALS], 6),
    ids=lambda each: each.name,
)
def test_a_correct_stack_passes(stack, trial, host_cache, seed):
    with torch.inference_mode():
        verdict = prove(HostDevice(host_cache, seed), CATALOG, stack, trial, host_cache, seed)
    assert verdict.passed, verdict
    assert verdict.steps == sum(start.steps for start in trial.starts)


def test_columns_that_ask_for_several_packets_of_an_embedding_at_once(host_cache, seed):
    """A lane of one warp has three neighbouring packets of 288 columns."""
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "columns", "value_token"], {}, 256)
    with torch.inference_mode():
        verdict = prove(HostDevice(host_cache, seed), CATALOG, stack, BY_NAME["half way"], host_cache, seed)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("slots", "threads"), [(5, 32), (2, 64), (6, 128), (12, 96)])
def test_teams_of_warps_take_the_tiles_of_a_small_ring(slots, threads, host_cache, seed):
    """Of many blocks that share the positions of a head; a block of one warp or of three has no second team."""
    given = {"slots": slots, "window": 2, "kb": 6, "chunk": 124}
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "stream_kv"], given, threads)
    trial = replace(BY_NAME["long"], knobs=GIVEN, threads=threads, blocks=7, starts=(Start(1024),))
    with torch.inference_mode():
        verdict = prove(HostDevice(host_cache, seed), CATALOG, stack, trial, host_cache, seed)
    assert verdict.passed, verdict


def test_an_odd_ring_is_refused_where_two_teams_take_its_tiles(host_cache, seed):
    """A team that had not waited for the last tile of a slot would take its phase for that of the next one."""
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "stream_kv"], {"slots": 5}, 128)
    with pytest.raises(CompileError, match="make slots even"):
        prove(HostDevice(host_cache, seed), CATALOG, stack, BY_NAME["132 blocks"], host_cache, seed)


# The trial that finds it, the stack, and the edit of its text.
FAULTS = [
    ("wide", "baseline", "i < K; i += 32 * width", "i < 32 * width && i < K; i += 32 * width"),
    (
        "wide",
        "redundant_rmsnorm",
        "i += block_threads * width) {\n    const auto a = x(i);\n    const auto w",
        "i += 2 * block_threads * width) {\n    const auto a = x(i);\n    const auto w",
    ),
    (
        "wide",
        "split_kv",
        "sum = fmaf(port::load_activation(from + 1), keep, sum);",
        "sum += port::load_activation(from + 1);",
    ),
    ("wide", "cp_async", "item % per_row >= per_matrix;", "item % per_row > per_matrix;"),
    ("many words", "baseline", "port::as_float(best.index)", "port::as_float(best.index & 0xffff)"),
    (
        "negative logits",
        "baseline",
        "Best best{negative_infinity(), 0};\n  const auto job",
        "Best best{-1.0f, 0};\n  const auto job",
    ),
    ("negative logits", "fused_head", "bits & 0x80000000u ? ~bits", "bits & 0x80000000u ? bits"),
    ("low scores", "baseline", "float max = negative_infinity(), sum = 0;", "float max = -80.0f, sum = 0;"),
    (
        "large gates",
        "baseline",
        "sums[0] / (1.0f + expf(-sums[0]))",
        "sums[0] * expf(sums[0]) / (1.0f + expf(sums[0]))",
    ),
    ("small inputs", "baseline", "/ model::hidden + model::rms_eps", "/ model::hidden + 1e-6f"),
    ("half way", "baseline", "+ 0x7fffu + ((bits >> 16) & 1u)", "+ 0x8000u"),
    ("half way", "baseline", "+ 0x7fffu + ((bits >> 16) & 1u)", "+ 0x7fffu"),
    ("twins", "fused_head", "Packed(ordered) << 32", "Packed(ordered & ~0xfffu) << 32"),
    ("ties", "baseline", "b.value == a.value && b.index < a.index", "b.value == a.value && b.index > a.index"),
    ("many blocks", "atomic_barrier", "port::load_acquire(epoch) != now;", "port::load_acquire(epoch) > now;"),
    ("long prompt", "baseline", "c.state[state_at::prompt_length]", "(c.state[state_at::prompt_length] & 7u)"),
]


@pytest.mark.parametrize(("trial", "name", "old", "new"), sampled(FAULTS, 4))
def test_a_trial_finds_what_it_is_for(trial, name, old, new, host_cache, seed):
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    device = HostDevice(host_cache, seed, timeout=20)
    try:
        found = str(prove(device, CATALOG, stack_of(name), BY_NAME[trial], host_cache, seed, edit).mismatch)
    except Hung as error:
        found = str(error)
    assert f"trial: {trial}" in found


def test_the_knobs_of_a_trial_are_those_of_the_stack_or_the_ends_of_their_ranges():
    stack, trial = stack_of("warp_split"), BY_NAME["wide"]  # 2:6 of 8 warps is about 1:2 of 3
    ratios = {"knobs": (trial.knobs, "producers = 1; constexpr int consumers = 2")}
    assert trial.knobs == GIVEN
    assert ratios["knobs"][1] in text_of(CATALOG, stack, trial).text
    ends = {LOW: "chunk = 16;", HIGH: "chunk = 16384;"}
    for which, constant in ends.items():
        some = next(each for each in TRIALS if each.knobs == which)
        assert constant in text_of(CATALOG, stack_of("split_kv"), some).text


def test_what_a_validation_leaves_out_is_what_no_trial_of_it_covers():
    assert not_exercised(chosen("all")) == ()
    plain = not_exercised(chosen("plain"))
    assert BY_NAME["many words"].covers in plain
    assert len(not_exercised(chosen("none"))) == len(TRIALS) > len(plain)


def test_trials_fit_their_models_and_are_named_once(host_cache, seed):
    assert len(BY_NAME) == len(TRIALS)
    for trial in TRIALS:
        layout, weights, _ = expected(trial.model, trial.weights, host_cache, seed)
        for start, scenario in zip(
            trial.starts, drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed)), strict=True
        ):
            layout.check_room(start.position, start.steps)
            assert len(scenario.ids) == start.position + start.given
            assert start.barriers % 2 == 0
