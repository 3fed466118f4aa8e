"""Acceptance of drafts, and drafts by prompt lookup: the rules that a step of several tokens is compared with."""

from collections.abc import Sequence

LONGEST = 3  # ids that are looked for
NO_DRAFT = -1


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

    Of the earlier places with most of the last ids in front, up to LONGEST, the latest counts. What follows there may
    run into the drafts themselves.
    """
    for length in range(min(LONGEST, len(ids)), 0, -1):
        for end in range(len(ids) - 1, length - 1, -1):
            if ids[end - length : end] == ids[len(ids) - length :]:
                found = list(ids)
                for at in range(count):
                    found.append(found[end + at])
                return found[len(ids) :]
    return [NO_DRAFT] * count
