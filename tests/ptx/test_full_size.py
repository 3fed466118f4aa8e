"""One step of Qwen3-0.6B at full size, every stage of it, on the PTX device.

A run of the tests takes a few of the variants and named stacks; `make evidence` has a record of each.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from composed import NAMED, VARIANTS, Composed
from sampled import sampled, seed_for

from common.config.resolve import model_named
from common.devices.protocol import Session
from common.devices.ptx.device import PtxDevice
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import Scenario
from common.validate.snapshot import Snapshot, bit_differences

pytestmark = pytest.mark.cpu
POSITION = 20
DRAWN = 1  # stacks of a run, with the stacks that they must equal
CHUNK = 16  # so that split_kv has two chunks to merge
COMPOSED = [Composed(c.names, {"chunk": CHUNK} if "split_kv" in c.names else c.given) for c in (*VARIANTS, *NAMED)]


class Full:
    """One device, one copy of the weights, one start; and the validated outputs of each root."""

    def __init__(self, model: Model, cache: Path, seed: int) -> None:
        self.model, self.seed = model, seed
        self.weights = load("synthetic", model, None, cache, seed=0)[2].flat
        self.device = PtxDevice(cache, seed=seed)
        self.start = start(model, seed)
        self.roots: dict[str, Snapshot] = {}

    def session(self, composed: Composed) -> Session:
        program = self.device.compile(composed.source(self.model))
        self.device.seed += 10  # another schedule for each
        return self.device.session(program, self.weights)

    def root(self, composed: Composed) -> Snapshot:
        """The outputs of `composed`, compared with the reference stage by stage."""
        known = str(composed)
        if known not in self.roots:
            session = self.session(composed)
            verdict = validate(session, self.weights, [self.start], self.seed)
            assert verdict.passed, verdict
            self.roots[known] = self.step(session)
        return self.roots[known]

    def step(self, session: Session) -> Snapshot:
        """The outputs of one step from the start; closes the session."""
        session.reset(self.start.ids, self.start.position, self.start.history, forced=len(self.start.ids))
        session.run(1)
        seen = Snapshot.of(session)
        session.close()
        return seen


def start(model: Model, seed: int) -> Scenario:
    """A random history, with the magnitudes of normalized keys and projected values."""
    random = torch.Generator().manual_seed(seed)
    history = torch.full(Layout(model).cache.shape, torch.nan, dtype=torch.bfloat16)
    known = history[:, :, :, :POSITION]
    known.copy_(torch.randn(known.shape, generator=random))
    ids = torch.randint(model.vocab, (POSITION + 1,), generator=random).tolist()
    return Scenario(f"position {POSITION}", POSITION, tuple(ids), history)


@pytest.fixture(scope="module")
def full(cpu_cache):
    model = replace(model_named("qwen3_0_6b"), positions=64)
    return Full(model, cpu_cache, seed_for("full size"))


@pytest.mark.parametrize("composed", sampled(COMPOSED, DRAWN), ids=str)
def test_one_step_of_qwen3(full, composed):
    want = full.root(composed.root)
    if composed == composed.root:
        return
    seen = full.step(full.session(composed))
    different = next(bit_differences(seen, want, "differs from its parent"), None)
    assert different is None, f"{composed}: {different}; seed {full.seed}"
