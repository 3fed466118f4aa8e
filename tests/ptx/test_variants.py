"""Every variant on its parent, and many stacks: equal to the reference, and to their parents bit for bit, in any order
of lanes, warps and blocks.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch
from composed import STACKS, VARIANTS, Composed
from sampled import sampled

from common.errors import CompileError
from common.validate.check import validate
from common.validate.scenarios import Scenario, scenarios

pytestmark = pytest.mark.cpu
SCHEDULES = {"tiny": 5, "odd": 2}
RATIOS = ("0:8", "1:7", "2:6", "4:4", "7:1")
MATRICES = (["o"], ["gate", "down"], ["up"], [])
CORNERS = [
    *(Composed(("warp_split",), {"ratio": ratio}) for ratio in RATIOS),
    *(Composed(("vec128", "warp_split"), {"ratio": ratio}) for ratio in RATIOS),
    *(Composed(("cp_async",), {"stages": stages, "tile": tile}) for stages in (2, 3, 4) for tile in (1, 2)),
    Composed(("vec128", "cp_async"), {"stages": 2, "tile": 1}),
    *(Composed(("vec128",), {"l1": l1}) for l1 in ("default", "no_allocate")),
    *(Composed(("l2_prefetch",), {"how": how, "matrices": some}) for how in ("prefetch", "ldg") for some in MATRICES),
    *(Composed(("l2_prefetch",), {"prefetch_bytes": size}) for size in (128, 1000, 4 << 20)),
    *(Composed(("split_kv",), {"chunk": chunk}) for chunk in (16, 17, 16384)),
    *(Composed(("fused_head",), {"rows_per_warp": rows}) for rows in (1, 2, 4, 8)),
    *(Composed(("multi_step",), {"steps": steps}) for steps in (1, 3, 8)),
    *(Composed(("joint_heads", "by_value", "value_token"), {"steps": steps}) for steps in (1, 3)),
    *(Composed(("atomic_barrier",), {"blocks_per_sm": blocks}) for blocks in (2, 4)),
    *(Composed(("atomic_barrier", "productive_spin"), {"spin_bytes": size}) for size in (128, 262144)),
    *(
        Composed(("bulk_ring",), {"slots": slots, "kb": 6, "window": window, "ahead": ahead})
        for slots, window, ahead in ((2, 1, 0), (2, 2, 1), (3, 1, 1))
    ),
    Composed(("bulk_ring", "columns"), {"slots": 2, "kb": 6, "window": 2, "ahead": 0}),
    Composed(("bulk_ring", "columns", "tensor_rows"), {"slots": 3, "kb": 6, "window": 1, "products": 1}),
    *(Composed(("graph",), {"how": how}) for how in ("graph", "launches", "pdl")),
]
CASES = [*product([*VARIANTS, *STACKS], ("tiny", "odd"))]


@pytest.fixture
def model(request, shape):  # shape: of the case
    return request.getfixturevalue(shape)


def longest(model, seed, weights) -> Scenario:
    return max(scenarios(model, seed, weights, quick=True, tokens=8), key=lambda scenario: scenario.steps)


@pytest.mark.parametrize(("composed", "shape"), sampled(CASES, 4), ids=str)
def test_reference_and_parent(proved, model, composed):
    proved(composed, model, quick=model.name != "tiny" or composed in STACKS)


@pytest.mark.parametrize("composed", sampled(CORNERS, 3), ids=str)
def test_knobs(proved, tiny, composed):
    proved(composed, tiny)


@pytest.mark.parametrize(("composed", "shape"), sampled(reversed(CASES), 2), ids=str)  # not the same ones as above
def test_any_schedule_gives_the_same_bits(same_in_any_order, synthetic, model, composed, seed):
    weights, source = synthetic(model, seed), composed.source(model)
    start = longest(model, seed, weights)
    same_in_any_order(source, weights, start, range(seed, seed + SCHEDULES[model.name]))


def test_shared_memory_that_no_gpu_has_is_refused_in_one_line(open_session, synthetic, tiny, seed):
    greedy = Composed(("cp_async",), {"stages": 4, "tile": 2}).source(tiny, threads=1024)
    text = greedy.text.replace("tiles[block_warps][stages]", "tiles[block_warps][2 * stages]")  # 256 KB
    with pytest.raises(CompileError, match=r"needs, more than 227 KB: lower .*stages, tile or threads"):
        open_session(replace(greedy, text=text), synthetic(tiny, seed))


@pytest.mark.parametrize("chunk", sampled([16, 64], 1))
def test_split_kv_at_every_position(open_session, synthetic, tiny, chunk, seed):
    """All positions of the cache, each with a fresh random history."""
    weights = synthetic(tiny, seed)
    session = open_session(Composed(("split_kv",), {"chunk": chunk}).source(tiny), weights, schedule=seed)
    random = torch.Generator().manual_seed(seed)
    whole = torch.randn(2, 2, 2, 64, 32, generator=random).bfloat16()

    def starts():
        for position in range(tiny.positions):
            history = whole.clone()
            history[:, :, :, position:] = torch.nan
            ids = torch.randint(tiny.vocab, (position + 1,), generator=random).tolist()
            yield Scenario(f"position {position}", position, tuple(ids), history if position else None)

    verdict = validate(session, weights, starts(), seed)
    assert verdict.passed, verdict
    assert verdict.steps == tiny.positions
