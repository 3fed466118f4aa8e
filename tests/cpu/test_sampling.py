"""The sampling kernel on a CPU, against torch and the logits processors of transformers."""

import random
from dataclasses import replace

import pytest
import torch
from sampled import sampled

from common.compile.source import build
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.model.layout import Layout
from experiments.generation.request import Sampling
from experiments.generation.sampling import source, write_settings

pytestmark = pytest.mark.cpu
DRAWS = 10_000
FALSE_ALARM = 1e-7  # probability of a case to fail by chance
LEAST = 50  # expected draws of a cell, from which the distribution of chi-square holds in its tail

# A kernel that draws at so many positions, and counts the ids where the marks of seen ids would be.
MANY = f"""
struct Many {{ using Shared = Sample::Shared; }};
template <> DEVICE void run<Many>(const Buffers &b, void *memory, int) {{
  for (int draw = 0; draw < {DRAWS}; ++draw) {{
    const unsigned token = Sample::choose({{{{b, memory, draw, 0}}, b.scratch + Tap<Stage::lm_head>::at}});
    float *count = b.scratch + scratch_at::seen + token;
    if (threadIdx.x == 0) *count = *count + 1;
    block_barrier();
  }}
}}
"""


@pytest.fixture
def tiny(tiny):
    """With so many ids that the kernel has two warps; with fewer it has one."""
    return replace(tiny, vocab=1100)


@pytest.fixture
def sampler(tiny, cpu_cache, seed):
    """sampler(logits, sampling, ids): a session of the kernel; many=True: of the one that draws often."""
    layout, opened = Layout(tiny), {}

    def session_of(many):
        found = source(build([], tiny))
        if many:
            text = found.text.replace('#line 1 "entry"', MANY).replace("KERNEL_ENTRY(Sample", "KERNEL_ENTRY(Many")
            found = replace(found, text=text)
        device = PtxDevice(cpu_cache, seed=seed)
        weights = torch.zeros(layout.weights_size, dtype=torch.bfloat16)
        return device.session(device.compile(found), weights, 1)

    def open_(logits, sampling, ids=(1,), many=False):
        session = opened[many] = opened.get(many) or session_of(many)
        state = layout.initial_state(ids, len(ids) - 1, len(ids))
        state[layout.state["position"].offset] += 1  # as after a step
        state[layout.state["ids"].offset + len(ids)] = 7  # and its choice
        write_settings(state, layout, sampling, mark=3)
        session.reset([1], 0)
        session.resume(state)
        scratch = session.scratch()
        if logits is not None:
            slot = layout.tap("lm_head")
            scratch[slot.offset : slot.offset + slot.size] = logits
        if many:
            slot = layout.tap("seen")
            scratch[slot.offset : slot.offset + slot.size] = 0
        session._buffers["scratch"].tensor.copy_(scratch)
        session.run()
        return session

    yield open_
    for session in opened.values():
        session.close()


def chosen(session) -> int:
    state = session.layout.state
    position = int(session.state()[state["position"].offset])
    token, last = (int(session.state()[at]) for at in (state["token"].offset, state["ids"].offset + position))
    assert token == last
    return token


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), sampled([(0.7, 0, 1.0), (1.5, 9, 1.0), (1.0, 0, 0.7), (1.2, 30, 0.6)], 2)
)
def test_draws_are_distributed_as_torchs(sampler, tiny, seed, temperature, top_k, top_p):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers = [TemperatureLogitsWarper(temperature)]
    warpers += [TopKLogitsWarper(top_k)] if top_k else []

    def processed(scores, warpers):
        for warper in warpers:
            scores = warper(None, scores)
        return scores[0].softmax(0)

    torch.manual_seed(seed)
    near, expected = True, torch.zeros(1)
    while near or (expected >= LEAST).sum() < 5:
        logits = torch.randn(tiny.vocab) * 1.5
        scores = logits.double()[None]
        sums = processed(scores, warpers).sort(descending=True).values.cumsum(0)
        near = top_p < 1 and bool(((sums - top_p).abs() < 1e-5).any())  # rounding decides which token is the last
        expected = processed(scores, [*warpers, *([TopPLogitsWarper(top_p)] if top_p < 1 else [])]) * DRAWS
    session = sampler(logits, Sampling(temperature, top_k, top_p, seed=seed), many=True)
    slot = session.layout.tap("seen")
    counts = session.scratch()[slot.offset : slot.offset + slot.size].double()
    assert counts.sum() == DRAWS
    assert (counts[expected == 0] == 0).all()
    large = expected >= LEAST
    cells = [(counts[large], expected[large]), (counts[~large].sum()[None], expected[~large].sum()[None])]
    observed, wanted = (torch.cat(each) for each in zip(*cells, strict=True))
    observed, wanted = observed[wanted >= LEAST], wanted[wanted >= LEAST]
    chi_square = ((observed - wanted) ** 2 / wanted).sum()
    freedom = torch.tensor((len(wanted) - 1) / 2, dtype=torch.float64)
    assert float(torch.special.gammaincc(freedom, chi_square / 2)) > FALSE_ALARM, seed


def test_the_repetition_penalty_is_that_of_transformers(sampler, tiny, seed):
    from transformers import RepetitionPenaltyLogitsProcessor

    torch.manual_seed(seed)
    ids = torch.randint(tiny.vocab, (30,))
    logits = torch.randn(tiny.vocab)
    logits[ids[:20]] += 3  # so that it decides
    for penalty in (1.0, 1.3, 5.0, 0.5):
        want = RepetitionPenaltyLogitsProcessor(penalty)(ids[None], logits[None].clone())[0]
        assert chosen(sampler(logits, Sampling(0.0, repetition_penalty=penalty), ids.tolist())) == int(want.argmax())


def test_a_seed_decides_and_so_does_the_position(sampler, tiny, seed):
    logits = torch.zeros(tiny.vocab)

    def draw(of, length):
        return chosen(sampler(logits, Sampling(1.0, seed=of), [1] * length))

    numbers = random.Random(seed)
    seeds = [numbers.randrange(2**63) for _ in range(4)]
    assert [draw(one, 3) for one in seeds] == [draw(one, 3) for one in seeds]
    assert len({draw(one, length) for one in seeds for length in (3, 4, 5)}) > 6  # out of 1,100 ids


def test_what_may_be_chosen_shrinks_to_the_largest_logit(sampler, tiny, seed):
    torch.manual_seed(seed)
    logits = torch.randn(tiny.vocab)
    logits[3] = logits[9] = logits.max() + 1e-3
    for sampling in (Sampling(5.0, top_p=1e-9), Sampling(1e-3), Sampling(0.0, repetition_penalty=1.1)):
        assert chosen(sampler(logits, sampling, [1])) in ((3, 9) if sampling.temperature == 1e-3 else (3,))
    assert {chosen(sampler(logits, Sampling(5.0, top_k=1, seed=one))) for one in range(20)} == {3, 9}  # ties stay


def test_a_prompt_is_not_overwritten_and_missing_logits_are_told(sampler, tiny, seed):
    session = sampler(torch.zeros(tiny.vocab), Sampling(1.0), [1, 2])
    state = session.state()
    state[session.layout.state["prompt_length"].offset] = 4
    state[session.layout.state["ids"].offset + 2] = 99
    session.resume(state)
    session.run()
    assert session.state()[session.layout.state["ids"].offset + 2] == 99
    assert chosen(sampler(None, Sampling(1.0))) == -1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -1.0}, r"temperature=-1.0 is not a number in 0.001\.\.1000; .*or 0 for the largest logit"),
        ({"temperature": 1e-9}, "temperature=1e-09"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 0.0}, "top_p=0.0 is not a number in "),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0"),
        ({"top_k": -1}, r"top_k=-1 is not a whole number in 0\.\."),
        ({"top_k": 2.5}, "top_k=2.5"),
        ({"seed": False}, "seed=False"),
        ({"seed": 2**63}, "seed="),
    ],
)
def test_values_that_mean_nothing_are_refused(change, message):
    Sampling(0.7, 20, 0.9, 1.1, 5)
    with pytest.raises(LabError, match=message):
        replace(Sampling(0.7), **change)
