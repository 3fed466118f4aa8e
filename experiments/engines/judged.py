"""Validation of an arm before its race, by the judge of the lab's kernels: by every stage that the arm leaves."""

from collections.abc import Collection

from common.devices.protocol import Session
from common.errors import Mismatched
from common.validate.check import validate
from common.validate.scenarios import scenarios
from experiments.run.setup import Setup

# What an arm shows: every stage; the last one and its cache; or only the ids that it chose.
STAGES, LOGITS, IDS = "stages", "logits, cache, ids", "ids"


def judged(session: Session, lab: Setup, shown: Collection[str] | None = None) -> str:
    """STAGES, if `session` agrees with the float64 reference in the few scenarios of a large model.

    Every tap, entry and word of the state is compared, with the tolerances and rules of the lab's own kernels; shown:
    only the taps of these stages, and the answer is LOGITS. Raises Mismatched with the first wrong element; Refused for
    weights that no fp32 kernel can be compared with.
    """
    seed, weights = lab.config.seed, lab.packed.flat
    drawn = scenarios(lab.model, seed, weights, quick=True, tokens=session.layout.tokens)
    verdict = validate(session, weights, lab.model, drawn, seed, lab.expected, shown=shown)
    if verdict.mismatch:
        raise Mismatched(f"{verdict.mismatch}; seed {seed}", "correct that stage; only what passes is timed")
    return LOGITS if shown else STAGES
