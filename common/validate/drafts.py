"""Acceptance of drafts, and drafts by prompt lookup: the rules that a step of several tokens is compared with."""

from collections.abc import Iterator, Sequence
from random import Random

from common.devices.protocol import Session
from common.validate.scenarios import Scenario
from common.validate.snapshot import Snapshot, state_difference
from common.validate.verdict import Mismatch

LONGEST = 3  # ids that are looked for
NO_DRAFT = -1
LOOKUPS = 8  # in each scenario


def accepted(choices: Sequence[int], ids: Sequence[int], position: int, given: int) -> int:
    """Number of drafts that greedy decoding would have chosen: those before the first that differs.

    choices: of the tokens at `position` and behind it. ids: by position; those below `given` are a prompt, which counts
    as chosen.
    """
    behind = range(position + 1, position + len(choices))
    agree = [at < given or ids[at] == choice for at, choice in zip(behind, choices, strict=False)]
    return agree.index(False) if False in agree else len(agree)


def looked_up(ids: Sequence[int], count: int) -> list[int]:
    """`count` drafts behind `ids`, by prompt lookup (Saxena 2023); NO_DRAFT where the last id did not occur before.

    The longest earlier match of the last ids, up to LONGEST, wins, the most recent on ties. What follows may run into
    the drafts themselves.
    """
    if count < 1:  # a step of one token has none, and each is compared
        return []
    for length in range(min(LONGEST, len(ids)), 0, -1):
        for end in range(len(ids) - 1, length - 1, -1):
            if ids[end - length : end] == ids[len(ids) - length :]:
                found = list(ids)
                for at in range(count):
                    found.append(found[end + at])
                return found[len(ids) :]
    return [NO_DRAFT] * count


def lookup_difference(session: Session, scenario: Scenario) -> Iterator[Mismatch]:
    """Decode steps whose tokens are all of a prompt of few ids: the drafts behind it are those of `looked_up`.

    The last step ends at the last position, behind which there is no place for drafts.
    """
    layout, random = session.layout, Random(str((scenario.ids, scenario.position)))
    for position in (*[scenario.position] * (LOOKUPS - 1), layout.model.positions - layout.tokens):
        few = [0, *(random.randrange(layout.model.vocab) for _ in range(2))]
        ids = random.choices(few, k=position + layout.tokens + 1)
        session.reset(ids, position, None, len(ids), scenario.barriers)  # only ids are compared
        session.run(1)
        room = layout.model.positions + 1 - len(ids)
        drafts = looked_up(ids, min(layout.tokens - 1, room))
        expected = [*ids, *drafts, *[NO_DRAFT] * (room - len(drafts))]
        for mismatch in state_difference(Snapshot.at(session), {"ids": expected}):
            yield mismatch.noted("drafts behind a prompt of few ids")
