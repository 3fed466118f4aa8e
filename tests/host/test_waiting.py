"""Grid barrier that times out: a block writes where it waited to `waits`, which the host reads after the trap."""

import dataclasses

import pytest
import torch

from common.devices.barrier_report import raise_if_barrier_timed_out
from common.errors import Hung
from common.model.layout import WAIT_WORDS

LIMIT = "constexpr unsigned spin_limit = 1u << 25;"


@pytest.mark.host
@pytest.mark.parametrize("stack", [(), ("atomic_barrier",)], ids=["baseline", "atomic_barrier"])
def test_kernel_that_times_out_reports_where(open_session, synthetic, tiny, stack, seed):
    """With a limit of no polls, the first block that has to wait times out; the schedule decides at which barrier."""
    from composed import Composed

    source = Composed(stack).source(tiny)
    assert source.text.count(LIMIT) == 1
    hasty = dataclasses.replace(source, text=source.text.replace(LIMIT, "constexpr unsigned spin_limit = 0;"))
    session = open_session(hasty, synthetic(tiny, seed), blocks=3, schedule=seed)
    session.reset([1], 0)
    with pytest.raises(Hung, match=r"a grid barrier timed out: 1 block \([012]\) waited after \w+, layer \d") as hung:
        session.run()
    assert "2 blocks (" in hung.value.report.splitlines()[1]


def words(blocks: int, **places: tuple[int, int, int, int]) -> torch.Tensor:
    waits = torch.zeros(blocks + 1, WAIT_WORDS, dtype=torch.int32)  # the buffer is longer than the grid
    for block, row in places.items():
        waits[int(block[1:])] = torch.tensor(row, dtype=torch.int32)
    return waits.flatten()


def test_no_block_timed_out():
    raise_if_barrier_timed_out(words(3), 3)


def test_report_has_a_line_for_each_barrier():
    down, qkv = 1 + 8, 1 + 2  # stages count from 0: embed, input_norm, qkv, ... down
    waits = words(5, b0=(down, 1, -0x7FFFFFFF, 7), b2=(down, 1, -0x7FFFFFFF, 7), b3=(qkv, 1, 3, 7))
    with pytest.raises(Hung) as hung:
        raise_if_barrier_timed_out(waits, 5)
    assert hung.value.report.splitlines() == [
        "2 blocks (0, 2) waited after down, layer 1 (arrived 0x80000001, epoch 7)",
        "1 block (3) waited after qkv, layer 1 (arrived 0x00000003, epoch 7)",
        "2 blocks (1, 4) waited at no grid barrier",
    ]


def test_long_lists_are_cut():
    waits = torch.tensor([1, 0, 0, 0] * 20, dtype=torch.int32)
    with pytest.raises(Hung, match=r"20 blocks \(0, 1, .*, 15, \.\.\.\) waited after embed, layer 0"):
        raise_if_barrier_timed_out(waits, 20)
