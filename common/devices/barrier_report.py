"""Report of a grid barrier that timed out, read from the words that waiting blocks write before they trap.

The kernel side is common/kernel/barrier.cuh, and mail.cuh for values: each wait is limited to `spin_limit` polls.
"""

import torch

from common.errors import Hung
from common.model.layout import WAIT_WORDS
from common.model.stages import STAGES

FOR_VALUES = 1 << 16  # in the first word: the block waited for values (mail.cuh)
FOR_PHASE = 1 << 17  # in the first word: the block waited for a barrier in its shared memory
LISTED = 16  # block numbers in one line of the report


def raise_if_barrier_timed_out(waits: torch.Tensor, blocks: int) -> None:
    """Raise Hung if a block timed out; its report has a line for each barrier, and one for the blocks at none.

    waits: int32, [at least blocks * WAIT_WORDS]. Words of a block: stage + 1 (0: it did not time out), layer, and the
    last values it read of the barrier's words `arrived` and `epoch`. Where it waited for values, FOR_VALUES is added to
    the first word, and the third is the element that was missing; with FOR_PHASE the last two are the phase and the
    place of the barrier in shared memory.
    """
    block_words = waits[: blocks * WAIT_WORDS].view(blocks, WAIT_WORDS).tolist()
    places: dict[str, list[int]] = {}
    for block, (stage, layer, arrived, epoch) in enumerate(block_words):
        if stage & FOR_PHASE:
            place = f"in shared memory for phase {arrived & 0xFFFFFFFF} of the barrier at byte {epoch}"
            places.setdefault(place, []).append(block)
        elif stage & FOR_VALUES:
            place = f"for element {arrived} of {STAGES[(stage ^ FOR_VALUES) - 1]}, layer {layer}"
            places.setdefault(place, []).append(block)
        elif stage:
            words = f"arrived {arrived & 0xFFFFFFFF:#010x}, epoch {epoch & 0xFFFFFFFF}"
            places.setdefault(f"after {STAGES[stage - 1]}, layer {layer} ({words})", []).append(block)
    if not places:
        return
    lines = [f"{_blocks(waiting)} waited {place}" for place, waiting in places.items()]
    absent = [block for block, row in enumerate(block_words) if not row[0]]
    if absent:
        lines.append(f"{_blocks(absent)} waited at no grid barrier")
    first = lines[0].partition(" waited ")[2]
    if first.startswith("in shared memory"):
        cause = "a barrier in shared memory timed out"
        remedy = "make copies bring the bytes it expects, and every warp arrive"
    elif first.startswith("for"):
        cause, remedy = "values did not arrive", "make every block publish its part of every result, once a step"
    else:
        cause = "a grid barrier timed out"
        remedy = "make every block reach every grid barrier, the same number of times"
    raise Hung(f"{cause}: {lines[0]}", remedy, "\n".join(lines))


def _blocks(blocks: list[int]) -> str:
    names = ", ".join(map(str, blocks[:LISTED])) + (", ..." if len(blocks) > LISTED else "")
    return f"{len(blocks)} block{'s' * (len(blocks) > 1)} ({names})"
