"""Who waited where, read from the words that blocks leave before they trap (give_up in common/device/barrier.cuh)."""

import torch

from common.errors import Hung
from common.layout import WAIT_WORDS
from common.model import STAGES

NAMED = 16  # blocks that are listed one by one


def raise_if_gave_up(waits: torch.Tensor, blocks: int) -> None:
    """Raise Hung, with one line per barrier and one for the missing blocks, when any block gave up waiting.

    waits: int32, [at least blocks * WAIT_WORDS]; each block has stage + 1 (0: it did not give up), layer, and the
    barrier's words `arrived` and `epoch` as it saw them last.
    """
    rows = waits[: blocks * WAIT_WORDS].view(blocks, WAIT_WORDS).tolist()
    places: dict[str, list[int]] = {}
    for block, (stage, layer, arrived, epoch) in enumerate(rows):
        if stage:
            words = f"arrived {arrived & 0xFFFFFFFF:#010x}, epoch {epoch & 0xFFFFFFFF}"
            places.setdefault(f"behind {STAGES[stage - 1]}, layer {layer} ({words})", []).append(block)
    if not places:
        return
    lines = [f"{_blocks(waiting)} waited {place}" for place, waiting in places.items()]
    silent = [block for block, row in enumerate(rows) if not row[0]]
    if silent:
        lines.append(f"{_blocks(silent)} waited at no grid barrier")
    raise Hung(f"a grid barrier gave up: {lines[0]}", "see the report: who waits where", "\n".join(lines))


def _blocks(blocks: list[int]) -> str:
    names = ", ".join(map(str, blocks[:NAMED])) + (", ..." if len(blocks) > NAMED else "")
    return f"{len(blocks)} block{'s' * (len(blocks) > 1)} ({names})"
