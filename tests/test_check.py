"""Validator against a correct session, and against the same session with one fault at a time."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from composed import compare_bits
from fake_session import REGIONS, FakeSession

from common.errors import Refused
from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.check import validate
from common.validate.reference import Past, Reference
from common.validate.scenarios import scenarios
from common.validate.tolerances import FACTOR, KEPT, RUNS, SHARE, ReferenceSteps, check_tolerance, tolerances

MODEL = Model("small", 32, 48, 2, 4, 2, 16, 40, 36, 1e6, 1e-6, False)


def random_weights(model: Model, seed: int) -> torch.Tensor:
    """bf16 weights with outputs near 1; the embedding is small, as in real models, so that eps matters."""
    torch.manual_seed(seed)
    layout = Layout(model)
    flat = torch.zeros(layout.weights_size, dtype=torch.bfloat16)
    for name, layer in layout.tensors():
        slot = layout.weight(name, layer)
        noise = torch.randn(slot.size)
        scale = 0.03 if name == "embed" else slot.shape[-1] ** -0.5
        flat[slot.offset : slot.offset + slot.size] = 1 + noise / 4 if len(slot.shape) == 1 else noise * scale
    return flat


def verdict(seed: int, fault: str = "", at: int = 0, model: Model = MODEL, quick: bool = False, **rest):
    weights = random_weights(model, seed)
    session = FakeSession(model, weights, fault, at)
    return validate(session, weights, scenarios(model, seed, weights, quick), seed, **rest)


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        Model("one_head", 8, 16, 1, 1, 1, 8, 11, 3, 1e4, 1e-5, True),
        Model("odd", 72, 40, 3, 6, 2, 24, 53, 70, 5e5, 1e-6, True),
        Model("one_position", 16, 16, 2, 3, 3, 8, 9, 1, 1e4, 1e-5, True),
    ],
    ids=lambda model: model.name,
)
def test_a_correct_session_passes_every_scenario(model, seed):
    found = verdict(seed, model=model)
    assert found.passed, found
    assert found.status == "PASSED"
    assert 0 < found.worst.ratio < 1
    assert str(seed) in str(found)
    assert "\n" not in str(found)


# fault, layer, and the stage that must be named; a layer of None for stages outside the layers
FAULTS = [
    ("theta", 0, "rope", None),
    ("rope position", 0, "rope", None),
    ("eps", 0, "input_norm", 0),
    ("norm of another layer", 1, "input_norm", 1),
    ("last row dropped", 1, "qkv", 1),
    ("no QK-norm", 1, "qk_norm_rope", 1),
    ("rope pairing", 0, "qk_norm_rope", 0),
    ("truncated entry", 1, "key", 1),
    ("entry a row later", 1, "key", 1),
    ("no value stored", 0, "value", 0),
    ("unrounded entry", 1, "attention", 1),
    ("stale row", 1, "attention", 1),
    ("last position left out", 0, "attention", 0),
    ("gqa map", 1, "attention", 1),
    ("softmax without maximum", 0, "attention", 0),
    ("o_proj residual", 1, "o_proj", 1),
    ("gate and up swapped", 0, "gate_up", 0),
    ("down residual", 1, "down", 1),
    ("logit NaN", 0, "lm_head", None),
    ("tie to the higher id", 0, "argmax", None),
    ("token off by one", 0, "argmax", None),
    ("history touched", 1, "cache", None),
    ("later position touched", 0, "cache", None),
    ("NaN stored a position later", 0, "cache", None),
    ("NaN between two taps", 0, "scratch", None),
    *((f"{name} sent a turn too early", 0, "scratch", None) for name in REGIONS),
    ("state between two words", 0, "state", None),
    ("ids of a sampler", 0, "scratch", None),
    ("settings of a sampler", 0, "state", None),
    ("position stands still", 0, "state", None),
    ("prompt overwritten", 0, "state", None),
    ("older id overwritten", 0, "state", None),
    ("prompt length changed", 0, "state", None),
    ("token word wrong", 0, "argmax", None),
    *((fault, 0, "reset", None) for fault in ("scratch kept", "cache kept", "history lost")),
    *((f"no {stage} tap", layer, stage, layer) for stage, layer in Layout(MODEL).taps()),
]


@pytest.mark.parametrize(("fault", "at", "stage", "layer"), FAULTS)
def test_a_fault_is_named_by_its_stage_and_layer(fault, at, stage, layer, seed):
    weights = random_weights(MODEL, seed)
    if fault == "tie to the higher id":  # every logit twice
        slot = Layout(MODEL).weight("lm_head")
        head = weights[slot.offset : slot.offset + slot.size].view(slot.shape)
        head[1::2] = head[::2]
        clean = validate(FakeSession(MODEL, weights), weights, scenarios(MODEL, seed, weights), seed)
        assert clean.passed, clean
    session = FakeSession(MODEL, weights, fault, at)
    found = validate(session, weights, scenarios(MODEL, seed, weights), seed)
    assert found.status == "MISMATCH", f"{fault} passed, seed {seed}"
    assert (found.mismatch.stage, found.mismatch.layer) == (stage, layer), found
    assert "scenario" in str(found)
    assert "\n" not in str(found)


def test_the_first_wrong_element_is_reported(seed):
    m = MODEL
    row = m.query + 2 * m.kv - 1
    assert verdict(seed, "last row dropped", 1).mismatch.index == (row,)
    assert verdict(seed, "logit NaN").mismatch.index == (m.vocab - 1,)
    assert verdict(seed, "history touched", 1).mismatch.index == (1, 0, 0, 0, 3)
    assert verdict(seed, "older id overwritten").mismatch.note.startswith("ids")


def test_different_repeated_runs_and_steps_that_need_the_host_are_found(seed):
    # The flipped bit is below every tolerance; the queued fault is right as long as the host waits between steps.
    found = verdict(seed, "nondeterministic").mismatch
    assert found.note.startswith("differs between runs")
    assert found.stage == "final_norm"
    found = verdict(seed, "queued token stale").mismatch
    assert found.note.startswith("differs when its steps are queued")
    # The taps are the last step's: where its token is the stale one by chance, the attended entries still differ.
    assert found.stage in ("embed", "attention")


@pytest.mark.parametrize("fault", ["unwritten memory read", "result of an earlier launch used"])
def test_what_a_launch_may_not_read_is_found_by_other_contents(seed, fault):
    found = verdict(seed, fault).mismatch
    assert found.stage == "final_norm"
    assert found.note.startswith("differs between runs")


def test_twenty_times_the_error_of_fp32_is_found(seed):
    """As measured here, of runs in several orders of summation, whatever the tolerance makes of them."""
    weights, layout, tap = random_weights(MODEL, seed), Layout(MODEL), ("down", 1)
    start = next(scenarios(MODEL, seed, weights))
    session = FakeSession(MODEL, weights)
    session.reset(start.ids, 0)
    session.run()
    clean, stored = session.scratch(), session.cache.entries(0, 1)
    step = start.ids[0], 0, stored, stored[:, :, :, 0]
    want = Reference(layout, weights).step(*step)[tap]
    runs = [Reference(layout, weights, torch.float32, pieces).step(*step)[tap] for pieces in (1, 2, 3, 4)]
    error = max(2.0**-24 * float(want.abs().max()), *(float((run - want).abs().max()) for run in runs))
    at = layout.tap(*tap).offset  # its first element
    away = 20 * error if clean[at] >= want[0] else -20 * error
    scratch = session.scratch
    session.scratch = lambda: scratch().index_add(0, torch.tensor([at]), torch.tensor([away]))
    found = validate(session, weights, [start], seed)
    assert (found.mismatch.stage, found.mismatch.layer) == tap


def test_bit_equality_with_a_parent(seed):
    weights = random_weights(MODEL, seed)
    parent = FakeSession(MODEL, weights)
    assert compare_bits(FakeSession(MODEL, weights), parent, scenarios(MODEL, seed, weights)) is None
    odd = FakeSession(MODEL, weights, "nondeterministic")  # in odd launches four ulps off
    assert compare_bits(odd, parent, scenarios(MODEL, seed, weights)).stage == "final_norm"
    other = FakeSession(MODEL, weights, "older id overwritten")
    assert compare_bits(other, parent, scenarios(MODEL, seed, weights)).note.startswith("ids")


@pytest.mark.parametrize("scale", [1e12, 1e30])
def test_weights_that_overflow_fp32_are_refused_without_a_verdict_on_the_kernel(seed, scale):
    weights = random_weights(MODEL, seed) * scale
    session = FakeSession(MODEL, weights)
    with pytest.raises(Refused, match=r"at \w+( of layer \d)? the tolerance is .* largest value is .*; .*rescale"):
        validate(session, weights, scenarios(MODEL, seed, weights), seed)


def test_weights_with_near_ties_are_not_refused(seed):
    weights = random_weights(MODEL, seed)
    (*_, last) = scenarios(MODEL, seed, weights, quick=True)
    assert last.near_ties
    assert not any(each.near_ties for each in scenarios(MODEL, seed, weights) if each.name != last.name)
    tap, want = ("attention", 0), torch.full((4,), 2.0)
    check_tolerance(tap, 1.9, want, near_ties=True)
    check_tolerance(tap, 2 * SHARE, want, near_ties=False)
    check_tolerance(tap, 0.0, torch.zeros(4), near_ties=False)
    for allowed, value in ((2.001 * SHARE, 2.0), (1e-9, 0.0), (1e-9, torch.nan)):
        with pytest.raises(Refused):
            check_tolerance(tap, allowed, torch.full((4,), value), near_ties=False)
    for allowed in (torch.inf, torch.nan):
        for near_ties in (True, False):
            with pytest.raises(Refused):
                check_tolerance(tap, allowed, torch.full((4,), torch.inf), near_ties)


def test_tolerances_by_hand(seed):
    layout = Layout(MODEL)
    weights = random_weights(MODEL, seed)
    truth = Reference(layout, weights).step(1, 0, torch.zeros(layout.cache.shape, dtype=torch.bfloat16))
    off = {tap: value.clone() for tap, value in truth.values.items()}
    off["o_proj", 1][3] -= 0.5
    runs = [truth, dataclasses.replace(truth, values=off), truth]
    allowed = tolerances(truth, runs)
    assert allowed["o_proj", 1] == pytest.approx(FACTOR * 0.5, rel=1e-12)  # (x - 0.5) - x is rounded
    assert allowed["embed", None] == 0
    assert allowed["rope", None] == FACTOR * 2**-24  # position 0: every cosine is 1


def test_scenarios_cover_the_listed_positions_and_inputs(seed):
    weights = random_weights(MODEL, seed)
    made = list(scenarios(MODEL, seed, weights))
    assert {0, 1, 15, 16, 17, 31, 32, 33, 35} <= {each.position for each in made}
    assert sum(each.steps >= 3 for each in made) >= 3
    assert any(len(each.ids) > each.position + 1 for each in made)
    for each in made:
        assert len(each.ids) > each.position
        assert each.position + each.steps <= MODEL.positions
        assert (each.history is None) == (each.position == 0)
        if each.history is not None:
            assert each.history.shape[3] == each.position
            assert each.history.isfinite().all()
        *pairs, last = pairwise((-1, *each.ids))
        assert all(one != other for one, other in pairs), "one place off is another id"
        assert (last[0] == last[1]) == (len(each.ids) > each.position + 1), "a prompt ends with one id twice"
    again = list(scenarios(MODEL, seed, weights))
    assert [(a.name, a.ids) for a in again] == [(b.name, b.ids) for b in made]
    assert [a.name for a in scenarios(MODEL, seed, weights, quick=True)] == [b.name for b in made[:3]]


def test_reference_steps_are_kept_for_the_same_start_and_no_other(seed, monkeypatch):
    layout, weights = Layout(MODEL), random_weights(MODEL, seed)
    computed = []
    step = Reference.step

    def counted(self, *start):
        computed.append(start)
        return step(self, *start)

    monkeypatch.setattr(Reference, "step", counted)
    reference, random = ReferenceSteps(layout, weights), torch.Generator().manual_seed(seed)
    cache = torch.randn(layout.cache.shape, generator=random).bfloat16()
    stored = torch.randn(cache[:, :, :, 0].shape, generator=random).bfloat16()
    past = Past.of(cache[:, :, :, :5])
    first = reference.step(1, past, stored)
    assert len(computed) == 1 + RUNS
    assert reference.step(1, Past.of(cache[:, :, :, :5].clone()), stored.clone()) is first
    assert len(computed) == 1 + RUNS
    other, entry = cache.clone(), stored.clone()
    other[-1, 1, -1, 4, -1] += 1
    entry[0, 0, 0, 0] += 1
    shorter, changed = Past.of(cache[:, :, :, :4]), Past.of(other[:, :, :, :5])
    for start in ((2, past, stored), (1, shorter, stored), (1, changed, stored), (1, past, entry)):
        assert reference.step(*start) is not first
    assert len(computed) == 5 * (1 + RUNS)
    for position in range(KEPT):
        reference.step(3, Past.of(cache[:, :, :, :position]), stored)
    before = len(computed)
    reference.step(1, past, stored)
    assert len(computed) == before + 1 + RUNS  # the oldest was dropped


def test_reference_steps_on_disk_are_read_back_as_they_were(seed, tmp_path, monkeypatch):
    layout, weights = Layout(MODEL), random_weights(MODEL, seed)
    random = torch.Generator().manual_seed(seed)
    cache = torch.randn(layout.cache.shape, generator=random).bfloat16()
    stored = torch.randn(cache[:, :, :, 0].shape, generator=random).bfloat16()
    start = (1, Past.of(cache[:, :, :, :5]), stored)
    taps, allowed = ReferenceSteps(layout, weights, "cpu", tmp_path, "a").step(*start)
    monkeypatch.setattr(Reference, "step", lambda *_: pytest.fail("computed"))
    found, same = ReferenceSteps(layout, weights, "cpu", tmp_path, "a").step(*start)
    assert list(found.values) == list(taps.values), "in the order of computation"
    assert all(torch.equal(found[tap], taps[tap]) and found[tap].dtype == taps[tap].dtype for tap in taps.values)
    assert (same, found.token) == (allowed, taps.token)
    assert torch.equal(found.stored, taps.stored)
