"""A block that gives up waiting leaves its place in `waits`, for the host to read when the kernel is gone."""

import dataclasses

import pytest
import torch

from common.devices.waiting import raise_if_gave_up
from common.errors import Hung
from common.layout import WAIT_WORDS

LIMIT = "constexpr unsigned spin_limit = 1u << 25;"


@pytest.mark.host
@pytest.mark.parametrize("stack", [(), ("atomic_barrier",)], ids=["baseline", "atomic_barrier"])
def test_kernel_that_gives_up_says_where(open_session, synthetic, tiny, stack, seed):
    """With no patience at all, the first block that has to wait gives up: behind the first stage, before anything."""
    from composed import Composed

    source = Composed(stack).source(tiny)
    assert source.text.count(LIMIT) == 1
    hasty = dataclasses.replace(source, text=source.text.replace(LIMIT, "constexpr unsigned spin_limit = 0;"))
    session = open_session(hasty, synthetic(tiny, seed), blocks=3, schedule=seed)
    session.reset([1], 0)
    with pytest.raises(Hung, match=r"a grid barrier gave up: 1 block \([012]\) waited behind embed, layer 0") as hung:
        session.run()
    assert "2 blocks (" in hung.value.report.splitlines()[1]


def words(blocks: int, **places: tuple[int, int, int, int]) -> torch.Tensor:
    waits = torch.zeros(blocks + 1, WAIT_WORDS, dtype=torch.int32)  # the buffer is longer than the grid
    for block, row in places.items():
        waits[int(block[1:])] = torch.tensor(row, dtype=torch.int32)
    return waits.flatten()


def test_nobody_gave_up():
    raise_if_gave_up(words(3), 3)


def test_who_waits_where_is_said_a_line_each():
    down, qkv = 1 + 8, 1 + 2  # stages count from 0: embed, input_norm, qkv, ... down
    waits = words(5, b0=(down, 1, -0x7FFFFFFF, 7), b2=(down, 1, -0x7FFFFFFF, 7), b3=(qkv, 1, 3, 7))
    with pytest.raises(Hung) as hung:
        raise_if_gave_up(waits, 5)
    assert hung.value.report.splitlines() == [
        "2 blocks (0, 2) waited behind down, layer 1 (arrived 0x80000001, epoch 7)",
        "1 block (3) waited behind qkv, layer 1 (arrived 0x00000003, epoch 7)",
        "2 blocks (1, 4) waited at no grid barrier",
    ]


def test_long_lists_are_cut():
    waits = torch.tensor([1, 0, 0, 0] * 20, dtype=torch.int32)
    with pytest.raises(Hung, match=r"20 blocks \(0, 1, .*, 15, \.\.\.\) waited behind embed, layer 0"):
        raise_if_gave_up(waits, 20)
