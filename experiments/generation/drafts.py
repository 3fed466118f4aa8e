"""Stacks that verify the drafts of an answer."""

from dataclasses import replace

from common.errors import LabError
from common.stacks.stack import Stack, knob_values
from experiments.run.setup import Setup

VERIFY, KNOB = "verify", "tokens"  # the variant, and its tokens of a step


def verifying(setup: Setup, stack: Stack, tokens: int | None) -> Stack:
    """`stack` with drafts. tokens: as from `options.read_draft`.

    Raises LabError for a stack that cannot verify them, and for one that has been given another number of tokens.
    """
    (knob,) = (each for each in setup.catalog.variants[VERIFY].knobs if each.name == KNOB)
    low, high = knob.ends(setup.config.threads)
    if tokens and not low <= tokens <= high:
        raise LabError(f"draft=ngram:{tokens} is not in {low}..{high}", f"give {low} to {high} tokens a step")
    known = VERIFY in stack.variants
    own = knob.value(stack.knobs[VERIFY]) if known else None
    if tokens in (None, own) or (known and not tokens):
        return stack
    if known and (own != knob.default or KNOB in setup.config.knobs):
        cause = f"{KNOB}={own} and draft=ngram:{tokens} are two numbers of tokens a step"
        raise LabError(cause, f"give one of them, or draft=ngram with {KNOB}={own}")
    values = knob_values(setup.catalog, stack.variants, stack.knobs).values()
    knobs = {name: value for each in values for name, value in each.items()} | ({KNOB: tokens} if tokens else {})
    try:
        chosen = setup.choose([*stack.variants, *([] if known else [VERIFY])], knobs)
    except LabError as error:
        remedy = "choose another variant, such as speculative, or draft=none"
        raise LabError(f"{stack.name} cannot take drafts: {error.cause}", remedy) from None
    return replace(chosen, name=stack.name if known else f"{stack.name}+{VERIFY}")
