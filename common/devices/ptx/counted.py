"""Counts of a launch by stage: exchanges, and bytes by buffer and width, from its rows' opcodes and lines.

Exchanges and bytes have the names of common.devices.counters.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from common.devices.ptx.accesses import VECTORS
from common.devices.ptx.matrices import PER_WORD, sizes
from common.devices.ptx.program import Told
from common.devices.ptx.text import WIDTHS
from common.model.stages import STAGES

DATA = {"weights": "weights", "cache": "kv", "scratch": "activations"}  # by buffer
NOT_SHARED = {"local", "param", "const", "global"}  # spaces of a load
LINE = 128  # bytes of a prefetch
_STAGE = re.compile(r"I\w*?L5Stage(\d+)E")  # argument of a template, in a mangled name


def counted(
    rows: Sequence[Told], executed: np.ndarray, buffers: Sequence[str], blocks: int, threads: int
) -> dict[str, Counter[str]]:
    """{stage: {field: count}} of a launch; "" for rows of no stage.

    executed: as in Ended. buffers: their names, in its order. blocks: of the grid; threads: of a block barrier. Polls
    of words that another block publishes depend on the schedule and are not counted.
    """
    found: dict[str, Counter[str]] = {}
    for row, (bare, *by_buffer, kept) in zip(rows, executed.tolist(), strict=True):
        moved = dict(zip(buffers, by_buffer, strict=False))
        synchronization = _synchronization(row, bare, moved, blocks, threads)
        for field, count in (*_fields(row, bare, moved), *synchronization, ("kept", kept)):
            if count:
                found.setdefault(stage_of(row), Counter())[field] += count
    return found


def bytes_of(opcode: str) -> int:
    """Bytes that a thread moves by `ld.global.v4.f32` or any other load, store or atomic; a warp shares a matrix."""
    words = opcode.split(".")
    if words[0] in ("ldmatrix", "stmatrix"):
        return 4 * int(next(word[1:] for word in words if word in ("x1", "x2", "x4")))
    if words[0] == "wmma":
        m, n, k = sizes(words[6])
        return {"a": m * k, "b": k * n}.get(words[2], m * n) // 32 * 4 // PER_WORD.get(words[-1], 1)
    return WIDTHS[words[-1]] * next((int(word[1:]) for word in words if word in VECTORS), 1)


def stage_of(row: Told) -> str:
    """The outermost stage function that the row was inlined into; "" for none."""
    stages = [found for line in row.line.chain() if (found := _STAGE.search(line.function))]
    return STAGES[int(stages[-1][1])] if stages else ""


def exchanges(counts: Mapping[str, int], times: int) -> dict[str, int]:
    """Exchanges between all blocks, by kind, of a stage that comes `times` times; counts: of `counted`.

    Known by their memory order, not by a name: a barrier is an arrival of every block at a word that blocks wait for; a
    counter one that nobody waits for, since the last to arrive goes on; by value, words are published by themselves.
    """
    kind = "grid_barriers" if counts.get("acquired") else "counters"
    return {kind: counts.get("arrivals", 0), "by_value": times if counts.get("published") else 0}


def _synchronization(
    row: Told, bare: int, moved: Mapping[str, int], blocks: int, threads: int
) -> Iterator[tuple[str, int]]:
    """Barriers of a block, by their number 0; of the grid arrivals of a block, words waited for, words published."""
    opcode, *words = row.opcode.split(".")
    if opcode.startswith("bar") and row.opcode.endswith(" 0"):
        yield "block_barriers", bare // threads
    elif opcode in ("atom", "red") and {"release", "acq_rel"} & {*words}:
        yield "arrivals", moved.get("state", 0) // blocks
    elif opcode == "ld" and "acquire" in words:
        yield "acquired", moved.get("state", 0)
    elif opcode in ("st", "red") and "relaxed" in words:
        yield "published", moved.get("scratch", 0)


def _fields(row: Told, bare: int, moved: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """(field, count) of a row, one for each buffer of a load."""
    opcode, *words = row.opcode.split(".")
    if opcode == "shfl":
        yield "shuffles", bare // 32
    elif opcode in ("atom", "red"):
        yield "atomics", sum(moved.values())
    elif opcode == "prefetch" or (opcode == "ld" and "volatile" in words):
        yield "prefetched", LINE * moved.get("weights", 0)
    elif opcode == "cp" and "prefetch" in words:
        yield "prefetched", moved.get("weights", 0)
    elif opcode == "cp":
        yield "copied_bulk" if "bulk" in words else "copied_async", sum(moved.values())
    elif opcode in ("ld", "st"):
        width = bytes_of(row.opcode)
        for buffer, data in DATA.items():
            if opcode == "st" and data != "weights":
                yield f"stored_{data}", width * moved.get(buffer, 0)
            elif opcode == "ld" and not {"relaxed", "acquire"} & set(words):
                yield f"{data}_{8 * width}bit", width * moved.get(buffer, 0)
        if opcode == "ld" and not NOT_SHARED & set(words):
            yield f"shared_{8 * width}bit", width * bare
