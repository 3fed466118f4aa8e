"""Report of a wait that timed out, read from the words that blocks write before they trap.

The kernel side is common/kernel/barrier.cuh, and mail.cuh for values: each wait is limited to `spin_limit` polls.
"""

from dataclasses import dataclass

import torch

from common.errors import Hung
from common.model.layout import WAIT_WORDS
from common.model.stages import STAGES

LISTED = 16  # block numbers in one line of the report


@dataclass(frozen=True)
class Wait:
    """Kind of wait of a block. flag: added to the first word of its report; place: text made of all its words."""

    flag: int
    place: str
    cause: str
    remedy: str


WAITS = (
    Wait(
        1 << 17,
        "in shared memory for phase {third} of the barrier at byte {fourth}",
        "a barrier in shared memory timed out",
        "make copies bring the bytes it expects, and every warp arrive",
    ),
    Wait(
        1 << 16,
        "for element {third} of {stage}, layer {layer}",
        "values did not arrive",
        "make every block publish its part of every result, once a step",
    ),
    Wait(
        0,
        "after {stage}, layer {layer} (arrived {third:#010x}, epoch {fourth})",
        "a grid barrier timed out",
        "make every block reach every grid barrier, the same number of times",
    ),
)


def raise_if_barrier_timed_out(waits: torch.Tensor, blocks: int) -> None:
    """Raise Hung if a block timed out; its report has a line for each place, and one for the other blocks.

    waits: int32, [at least blocks * WAIT_WORDS]. Words of a block: stage + 1 with the flag of its kind of wait (0: no
    timeout), layer, and two of progress: for a grid barrier the last values read of its words `arrived` and `epoch`,
    for values the missing element, for a barrier in shared memory its phase and place.
    """
    block_words = waits[: blocks * WAIT_WORDS].view(blocks, WAIT_WORDS).tolist()
    places: dict[tuple[Wait, str], list[int]] = {}
    absent = []
    for block, (first, layer, third, fourth) in enumerate(block_words):
        wait = next(each for each in WAITS if first & each.flag == each.flag)
        number = first - wait.flag
        if not first or not 0 <= number <= len(STAGES):  # no wait, or words of a stray write
            absent.append(block)
            continue
        stage = STAGES[number - 1]
        place = wait.place.format(stage=stage, layer=layer, third=third & 0xFFFFFFFF, fourth=fourth & 0xFFFFFFFF)
        places.setdefault((wait, place), []).append(block)
    if not places:
        return
    lines = [f"{_blocks(waiting)} waited {place}" for (_, place), waiting in places.items()]
    if absent:
        lines.append(f"{_blocks(absent)} reported no wait")
    wait, _ = next(iter(places))
    raise Hung(f"{wait.cause}: {lines[0]}", wait.remedy, "\n".join(lines))


def _blocks(blocks: list[int]) -> str:
    names = ", ".join(map(str, blocks[:LISTED])) + (", ..." if len(blocks) > LISTED else "")
    return f"{len(blocks)} block{'s' * (len(blocks) > 1)} ({names})"
