"""Choice of the next token in the baseline and in the fused head: every id can win, and ties go to the lowest.

Row i of the head is a vector of signs that differs from every other row, and the residual stream is row i. So logit i
is the number of columns, every other logit is smaller by at least 2, and all are exact.
"""

import pytest
import torch
from parts import build_parts
from sampled import sampled

from common.model.layout import Layout
from common.model.shapes import Model
from common.stacks.catalog import read_catalog

pytestmark = pytest.mark.cpu
FULL = 151_936  # Qwen3's vocabulary
SMALL = 211
COLUMNS = 24
HEAD = ("final_norm", "lm_head", "argmax")
CASES = [("baseline", {}), *(("fused_head", {"rows_per_warp": rows}) for rows in (1, 2, 4, 8))]
WITH_THREADS = [(*case, threads) for case in CASES for threads in (96, 256)]
WITH_BLOCKS = [(*case, blocks) for case in CASES for blocks in (1, 3, 8)]


class Head:
    """The last three stages of a one-layer model, repeated with many inputs."""

    def __init__(self, open_session, folder, name, knobs, vocab, threads, seed, blocks=8) -> None:
        model = Model("head", COLUMNS, 8, 1, 1, 1, 8, vocab, 16, 1e6, 0.0, True)
        self.layout = Layout(model)
        self.signs = signs(vocab, seed)
        self.weights = torch.zeros(self.layout.weights_size, dtype=torch.bfloat16)
        self.rows = self._slot("lm_head")
        self.rows.copy_(self.signs)
        self._slot("final_norm").fill_(1)
        self.open = lambda: open_session(source, self.weights, blocks, schedule=seed)
        variant = read_catalog().variants[name]
        source = build_parts([variant], model, folder, [HEAD], threads=threads, knobs={name: knobs})

    def _slot(self, name):
        slot = self.layout.weight(name)
        return self.weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    def tokens(self, streams):
        """The token chosen for each residual stream, float32 [n, COLUMNS], all by one session."""
        session = self.open()
        slot = self.layout.tap("down", 0)
        for stream in streams:
            session.reset([0], 0, None, 1)
            scratch = session.scratch()
            scratch[slot.offset : slot.offset + slot.size] = stream
            session.write_scratch(scratch)
            session.run()
            yield int(session.state()[self.layout.state["token"].offset])


def signs(rows: int, seed: int) -> torch.Tensor:
    """[rows, COLUMNS] of +1 and -1, all rows different: the bits of the row's number, then random ones."""
    bits = (torch.arange(rows).unsqueeze(1) >> torch.arange(18)) & 1
    random = torch.randint(0, 2, (rows, COLUMNS - 18), generator=torch.Generator().manual_seed(seed))
    return 2.0 * torch.cat((bits, random), dim=1) - 1


@pytest.mark.parametrize(("name", "knobs", "threads"), sampled(WITH_THREADS, 2), ids=str)
def test_every_id_can_win(open_session, tmp_path, name, knobs, threads, seed):
    head = Head(open_session, tmp_path, name, knobs, SMALL, threads, seed, blocks=3)
    assert list(head.tokens(head.signs)) == list(range(SMALL)), seed


BLOCK_SIZES = range(32, 1025, 32)


@pytest.mark.parametrize(
    ("name", "knobs", "threads"),
    [
        *sampled(((*CASES[3], threads) for threads in BLOCK_SIZES), 2),
        *sampled(((*CASES[0], threads) for threads in (32, 384, 1024)), 1),
    ],
    ids=str,
)
def test_sampled_ids_of_the_full_vocabulary(open_session, tmp_path, name, knobs, threads, seed):
    """The last row, one at the end of the last full pass of the grid, and a random one."""
    head = Head(open_session, tmp_path, name, knobs, FULL, threads, seed)
    a_pass = 8 * threads // 32 * knobs.get("rows_per_warp", 1)
    edge = FULL // a_pass * a_pass
    ids = [FULL - 1, min(edge - 1 + seed % 2, FULL - 1), seed % FULL]
    assert list(head.tokens(head.signs[ids])) == ids, seed


@pytest.mark.parametrize(("name", "knobs", "blocks"), sampled(WITH_BLOCKS, 2), ids=str)
def test_ties_go_to_the_lowest_id(open_session, tmp_path, name, knobs, blocks, seed):
    """Two to five equal rows win together: neighbours, rows of one warp, of other warps and of other blocks."""
    head = Head(open_session, tmp_path, name, knobs, SMALL, 96, seed, blocks)
    random = torch.Generator().manual_seed(seed)
    for count in range(2, 6):
        for first in (int(torch.randint(SMALL, (1,), generator=random)), SMALL - 1 - count):
            tied = [first, *torch.randint(SMALL, (count - 1,), generator=random).tolist(), min(first + 1, SMALL - 1)]
            head.rows.copy_(head.signs)
            head.rows[tied] = head.signs[first].bfloat16()
            head.weights = head.weights.clone()  # the device caches weights by tensor
            head.rows = head._slot("lm_head")
            assert list(head.tokens([head.signs[first]])) == [min(tied)], (tied, seed)


@pytest.mark.parametrize(("name", "knobs"), CASES, ids=str)
def test_minus_zero_ties_with_zero(open_session, tmp_path, name, knobs, seed):
    """All logits are 0 or less; four random rows have 0, of either sign, and the lowest of the four wins."""
    head = Head(open_session, tmp_path, name, knobs, SMALL, 96, seed)
    ids = torch.randperm(SMALL, generator=torch.Generator().manual_seed(seed))[:4].tolist()
    for zeros in (ids, ids[::-1]):
        head.weights = head.weights.clone()
        head.rows = head._slot("lm_head")
        head.rows.fill_(-1.0)
        head.rows[zeros[:2]] = 0.0
        head.rows[zeros[2:]] = -0.0
        assert list(head.tokens([torch.ones(COLUMNS)])) == [min(zeros)], (zeros, seed)


def test_a_full_model_with_all_logits_negative(open_session, tmp_path, seed):
    """The packed maximum starts below every number, not at zero."""
    head = Head(open_session, tmp_path, "fused_head", {"rows_per_warp": 4}, SMALL, 256, seed)
    head.rows.fill_(-2.0)
    head.rows[77] = -1.0
    assert list(head.tokens([torch.ones(COLUMNS)] * 3)) == [77] * 3
