"""Two weaker checks of a mutant, for comparison: of the final token, and `assert_close` on the final logits."""

from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from common.devices.ptx.device import PtxDevice
from common.errors import Crashed, Hung
from common.model.layout import Layout
from common.model.weights import load
from common.validate.reference import Reference
from common.validate.scenarios import Scenario, scenarios
from common.validate.snapshot import Snapshot
from tests.strength.mutants.mutation import Mutant, source_of

BLOCKS, TIMEOUT = 8, 30.0  # seconds of a launch


def weaker_checks(mutant: Mutant, seed: int, cache: Path) -> tuple[bool, bool]:
    """True where the final token is wrong, and where the final logits are, after three steps from a random history."""
    source, layout = source_of(mutant), Layout(mutant.model)
    weights = load("synthetic", mutant.model, None, cache / "weights", seed)[2].flat
    device = PtxDevice(cache / "kernels", seed=seed, timeout=TIMEOUT)
    program = device.compile(source)
    start, token, logits = _ordinary(layout, weights, seed, source.tokens_per_step)
    end = start.position + start.steps
    try:
        with closing(device.session(program, weights, BLOCKS)) as session:
            session.reset(start.ids, start.position, start.history, len(start.ids))
            for _ in range(start.steps):
                session.run(1)
                seen = Snapshot.of(session)
                position = int(seen.words("position"))
                if position >= end:
                    break
    except (Hung, Crashed):
        return True, True
    number = min(max(end - position + int(seen.words("accepted")), 0), seen.layout.tokens - 1)
    wrong = int(seen.words("ids")[end]) != token
    try:
        torch.testing.assert_close(seen.of_token(number).tap("lm_head"), logits)
    except AssertionError:
        return wrong, True
    return wrong, False


def _ordinary(layout: Layout, weights: Tensor, seed: int, tokens: int) -> tuple[Scenario, int, Tensor]:
    """Three steps after a random history, with the reference's last token and logits (fp32).

    Chosen so that fp32 runs of the reference agree with float64; else a correct kernel could fail by a cache rounding.
    """

    def follow(run: Reference, start: Scenario, history: Tensor) -> tuple[int, Tensor]:
        ids, pieces = list(start.ids), [history]
        for position in range(start.position, start.position + start.steps):
            taps = run.step(ids[position], position, pieces)
            pieces.append(taps.stored.unsqueeze(3))
            ids.append(taps.token)
        return taps.token, taps["lm_head", None].float()

    truth = Reference(layout.model, layout, weights)
    runs = [Reference(layout.model, layout, weights, torch.float32, pieces) for pieces in (1, 2, 3)]
    while True:
        start = next(s for s in scenarios(layout.model, seed, weights, True, tokens) if s.steps > 1)
        seed += 1
        if start.history is None:
            continue
        token, logits = follow(truth, start, start.history)
        if all(torch.allclose(follow(run, start, start.history)[1], logits, rtol=1.3e-6, atol=1e-5) for run in runs):
            return start, token, logits
