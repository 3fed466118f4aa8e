"""Validation of an arm before its race: every stage that it leaves, by the judge of the lab's kernels."""

from common.devices.protocol import Session
from common.errors import Mismatched
from common.validate.check import validate
from common.validate.scenarios import scenarios
from experiments.run.setup import Setup

STAGES, IDS = "stages", "ids"  # what an arm shows to the judge: every stage, or only the tokens that it chose


def judged(session: Session, lab: Setup) -> str:
    """STAGES, if `session` agrees with the float64 reference in the few scenarios of a large model.

    Every tap, entry and word of the state is compared, with the tolerances and rules of the lab's own kernels. Raises
    Mismatched with the first wrong element; Refused for weights that no fp32 kernel can be compared with.
    """
    seed, weights = lab.config.seed, lab.packed.flat
    drawn = scenarios(lab.model, seed, weights, quick=True, tokens=session.layout.tokens)
    verdict = validate(session, weights, lab.model, drawn, seed, lab.expected)
    if verdict.mismatch:
        raise Mismatched(f"{verdict.mismatch}; seed {seed}", "correct that stage; only what passes is timed")
    return STAGES
