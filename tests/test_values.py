"""Values that decide: each kind has its property in the reference's own taps, and every tolerance is smaller than the
effect of the nearest wrong formula."""

import math
from dataclasses import replace

import pytest
import torch

from common.model.layout import Layout
from common.model.weights import recoded
from common.validate import reference as formulas
from common.validate.prove import expected
from common.validate.reference import Past, Reference, Taps
from common.validate.rounding import half_way
from common.validate.scenarios import drawn
from common.validate.trials import TRIALS, Trial
from common.validate.values import LATE, ORDINARY, TWINS, tensor, weights_of

BY_NAME = {trial.name: trial for trial in TRIALS}


def steps(trial: Trial, cache, seed):
    """(taps, history, weights, layout) of the first step of each start."""
    layout, weights, _ = expected(trial.model, trial.weights, cache, seed)
    reference = Reference(layout, weights)
    for start in drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed)):
        entries = start.history
        if entries is None:
            entries = torch.full(layout.cache.shape, torch.nan, dtype=torch.bfloat16)
        yield reference.step(start.ids[start.position], start.position, entries), entries, start.position, weights


@pytest.mark.parametrize("kind", ["ties", "negative logits"])
def test_weights_below_bf16_are_changed_as_numbers_and_rounded_again(kind, seed):
    model = replace(BY_NAME[kind].model, name="few bits").in_formats("int4", "int8")
    exact, layout = Layout(model.in_formats()), Layout(model)
    ordinary = torch.randn(exact.weights_size, generator=torch.Generator().manual_seed(seed)).bfloat16()
    few = weights_of(kind, recoded(ordinary, exact, layout), layout, seed)
    numbers = weights_of(kind, recoded(recoded(ordinary, exact, layout), layout, exact), exact, seed)
    assert few.numel() == layout.weights_size
    bits = [each.view(torch.int16) for each in (few, recoded(numbers, exact, layout), recoded(ordinary, exact, layout))]
    assert torch.equal(bits[0], bits[1])
    assert not torch.equal(bits[0], bits[2])
    assert weights_of(ORDINARY, few, layout, seed) is few


def test_all_logits_are_negative(cpu_cache, seed):
    for taps, *_ in steps(BY_NAME["negative logits"], cpu_cache, seed):
        assert taps["lm_head", None].max() < -65504, "below fp16"


def test_all_scores_are_far_below_zero(cpu_cache, seed):
    trial = BY_NAME["low scores"]
    m = trial.model
    for taps, history, position, _ in steps(trial, cpu_cache, seed):
        keys = torch.cat((history[0, 0, :, :position], taps.stored[0, 0].unsqueeze(1)), dim=1).double()
        query = taps["qk_norm_rope", 0].view(m.kv_heads, -1, m.head_dim)
        assert (query @ keys.transpose(1, 2) / m.head_dim**0.5).max() < -104, "exp is 0 in fp32 below"


def test_gates_are_beyond_88_on_both_sides(cpu_cache, seed):
    trial = BY_NAME["large gates"]
    layout = Layout(trial.model)
    for taps, _, _, weights in steps(trial, cpu_cache, seed):
        gate = tensor(weights, layout, "gate", 0).double() @ taps["post_norm", 0]
        assert (gate > 88.8).sum() >= 3
        assert (gate < -88.8).sum() >= 3


def test_eps_is_larger_than_what_is_normalized(cpu_cache, seed):
    trial = BY_NAME["small inputs"]
    for taps, *_ in steps(trial, cpu_cache, seed):
        for stage, layer in (("embed", None), ("o_proj", 0), ("down", 0)):
            assert taps[stage, layer].square().mean() < trial.model.rms_eps


def test_values_are_half_way_and_both_neighbors_are_even_somewhere(cpu_cache, seed):
    for taps, *_ in steps(BY_NAME["half way"], cpu_cache, seed):
        value = taps["value", 0]
        ties = value[half_way(value)]
        down = (ties.bfloat16().double().abs() < ties.abs()).sum()
        assert down >= 3
        assert len(ties) - down >= 3


def test_half_way_by_hand():
    numbers = [1, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 - 2**-9, 1 + 2**-8 + 2**-40, 0, torch.nan]
    value = torch.tensor(numbers, dtype=torch.float64)
    assert half_way(value).tolist() == [False, True, True, True, True, False, False, False]


def test_the_best_logits_of_twins_differ_in_their_last_bits(cpu_cache, seed):
    for taps, *_ in steps(BY_NAME["twins"], cpu_cache, seed):
        logits = taps["lm_head", None]
        (best, *rest), (largest, *others) = (each.tolist() for each in logits.topk(TWINS))
        assert 0 < best - rest[0] < 16 * 2.0**-24 * 4 * best
        assert rest == pytest.approx(rest[:1] * (TWINS - 1), rel=1e-12)  # equal rows, summed in any order
        assert sorted(others)[TWINS // 2 - 1] < largest < sorted(others)[TWINS // 2]


def test_steps_of_other_values_are_never_taken_from_the_cache(tmp_path, monkeypatch):
    """As after an update of the lab that makes the values of a trial in another way."""

    def logits(scale):
        values = {"ties": lambda weights, layout, random: tensor(weights, layout, "lm_head").fill_(scale)}
        monkeypatch.setattr("common.validate.values.WEIGHTS", values)
        expected.cache_clear()
        layout, _, reference = expected(BY_NAME["ties"].model, "ties", tmp_path, 0)
        nothing = torch.zeros(layout.cache.shape, dtype=torch.bfloat16)
        return reference.step(0, Past.of(nothing[:, :, :, :0]), nothing[:, :, :, 0])[0]["lm_head", None]

    first, second = logits(1), logits(2)
    expected.cache_clear()
    assert first.abs().max() > 0
    assert torch.equal(second, 2 * first)


@pytest.mark.parametrize("name", ["ties", "square"])
def test_ties_are_exact(name, cpu_cache, seed):
    for taps, *_ in steps(BY_NAME[name], cpu_cache, seed):
        best, second = taps["lm_head", None].topk(2).values
        assert float(best) == pytest.approx(float(second), rel=1e-12)  # equal rows, summed in any order


def test_nine_logits_tie(cpu_cache, seed):
    for taps, *_ in steps(BY_NAME["equal rows"], cpu_cache, seed):
        best = taps["lm_head", None].topk(10).values
        assert best[:9].tolist() == pytest.approx([float(best[0])] * 9, rel=1e-12)
        assert best[9] < best[0] * (1 - 1e-9)


def test_the_largest_score_of_every_head_is_in_the_third_chunk(cpu_cache, seed):
    trial = BY_NAME["late maximum"]
    m = trial.model
    for taps, history, position, _ in steps(trial, cpu_cache, seed):
        query = taps["qk_norm_rope", 0].view(m.kv_heads, -1, m.head_dim)
        scores = query @ history[0, 0, :, :position].double().transpose(1, 2) / m.head_dim**0.5
        assert (scores.argmax(-1) >= LATE).all()


def test_the_token_is_beyond_two_to_the_seventeenth(cpu_cache, seed):
    for taps, *_ in steps(BY_NAME["many words"], cpu_cache, seed):
        assert taps.token >= 2**17


def test_the_next_word_is_chosen_wherever_it_lies(cpu_cache, seed):
    """As many steps as warps: each has the largest logit once."""
    trial = BY_NAME["large heads"]
    layout, weights, _ = expected(trial.model, trial.weights, cpu_cache, seed)
    nothing = torch.zeros(layout.cache.shape, dtype=torch.bfloat16)
    chosen = [Reference(layout, weights).step(word, 0, nothing).token for word in range(trial.model.vocab)]
    assert chosen == [*range(1, trial.model.vocab), 0]
    assert trial.starts[0].steps == trial.blocks * trial.threads // 32


def silu_by(exp):
    return lambda x: x / (1 + exp(-x))


def rounded(x, bits):
    """x with so many bits of mantissa."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def angles_in_fp32(model, position, dtype):
    exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float32) / model.head_dim
    angles = position * torch.tensor(model.rope_theta, dtype=torch.float32) ** -exponents
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


def without_eps_in_the_mean(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * weight


# what, the trial on which it must show, and the function of the reference in its place, or the field of the model
WRONG = [
    ("eps a hundredth larger", "small inputs", {"rms_eps": 1.01 * 2.0**-5}),
    ("eps 1e-6", "small inputs", {"rms_eps": 1e-6}),
    ("eps outside the root", "small inputs", {"rms_norm": without_eps_in_the_mean}),
    ("eps 1e-5 in place of 1e-6", "square", {"rms_eps": 1e-5}),
    ("theta a thousandth larger", "long", {"rope_theta": 1.001e6}),
    ("angles in fp32", "long", {"rope_table": angles_in_fp32}),
    ("silu by the tanh of a GPU", "wide", {"silu": lambda x: x * (0.5 + 0.5 * rounded((x / 2).tanh(), 11))}),
    ("silu by an exponential of fp16", "square", {"silu": silu_by(lambda x: rounded(x.exp(), 11))}),
    ("silu as its argument beyond 7", "half way", {"silu": lambda x: torch.where(x > 7, x, silu_by(torch.exp)(x))}),
    ("silu as 0 below -7", "half way", {"silu": lambda x: torch.where(x < -7, 0, silu_by(torch.exp)(x))}),
    ("GELU", "square", {"silu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))}),
    (
        "rsqrt of 16 bits",
        "wide",
        {"rms_norm": lambda x, w, eps: x * rounded((x.square().mean(-1, keepdim=True) + eps).rsqrt(), 16) * w},
    ),
]


@pytest.mark.parametrize(("what", "name", "changes"), WRONG, ids=[what for what, *_ in WRONG])
def test_every_tolerance_is_smaller_than_the_effect_of_a_wrong_formula(
    what, name, changes, cpu_cache, seed, monkeypatch
):
    trial = BY_NAME[name]
    layout, weights, reference = expected(trial.model, trial.weights, cpu_cache, seed)
    start = next(iter(drawn(trial.starts[:1], layout, weights, torch.Generator().manual_seed(seed))))
    at = (start.ids[start.position], start.position, start.history)
    stored = Reference(layout, weights).step(*at).stored
    right, allowed = reference.step(start.ids[start.position], start.past("cpu"), stored)
    model = replace(trial.model, **{field: value for field, value in changes.items() if not callable(value)})
    for name, function in changes.items():
        if callable(function):
            monkeypatch.setattr(formulas, name, function)
    wrong = Reference(Layout(model), weights).step(*at, stored)
    assert seen(right, wrong, allowed), what


def seen(right: Taps, wrong: Taps, allowed) -> list[tuple[str, int | None]]:
    return [tap for tap, want in right.values.items() if float((wrong[tap] - want).abs().max()) > allowed[tap]]
