"""Execution of a launch: orders drawn by seed, copies that land late, unwritten memory, and the limit of time."""

import numpy as np
import pytest
import torch

from common.devices.guarded import GuardedBuffer
from common.errors import Hung

pytestmark = pytest.mark.cpu


def test_endless_loop_times_out(launch):
    with pytest.raises(Hung, match=r"still running after 0\.5 s: .* test:1"):
        launch("volatile int i = 0; while (true) i = i + 1;", timeout=0.5)


UNWRITTEN = "out[blockIdx.x * 64 + threadIdx.x] = s.a[threadIdx.x]; s.a[threadIdx.x] = 1;"


def test_everything_unwritten_is_a_nan_of_its_own(launch, seed):
    """Threads and blocks that read it cannot agree on what it holds, and nothing is left of an earlier launch."""
    session = launch(UNWRITTEN, shared="float a[64];", seed=seed)
    seen = [session.scratch()]
    session.reset([1], 0)
    session.run()
    seen.append(session.scratch())
    assert all(each.isnan().all() for each in seen)
    assert session.cache.written(0) is None
    blocks = seen[0][: 3 * 64].view(torch.int32).view(3, 64)
    assert all(len(set(words)) == 61 for words in blocks.tolist()), "words repeat after 61"
    assert (blocks[0] != blocks[1]).all()
    assert (blocks[1] != blocks[2]).all()
    assert blocks.view(torch.bfloat16).isnan().all(), "as entries of the cache, too"


@pytest.mark.parametrize(("newest", "landed"), [(0, 2), (1, 1)])
def test_copies_land_at_their_wait_and_most_not_before(launch, newest, landed):
    body = f"""if (threadIdx.x != 0 || blockIdx.x != 0) return;
        copy_async<16>(s.tile[0], c.weights); copy_commit();
        copy_async<16>(s.tile[1], c.weights + 8); copy_commit();
        out[0] = bf16_low(s.tile[0][0]); out[1] = bf16_low(s.tile[1][0]);
        copy_wait<{newest}>();
        out[2] = bf16_high(s.tile[0][0]); out[3] = bf16_high(s.tile[1][0]); copy_wait<0>();"""
    out = torch.stack([launch(body, "alignas(16) unsigned tile[2][4];", seed=n).scratch()[:4] for n in range(8)])
    late = out.isnan().sum(0).tolist()
    assert min(late[:2]) > 2, "each is seen before it has landed"
    assert late[2] == 0
    assert late[3] == 0 if landed == 2 else late[3] > 2
    assert (out.isnan() | (out == torch.tensor([0.0, 8, 1, 9]))).all()  # weights count 0, 1, 2, ...


PUBLISH = """if (threadIdx.x != 0) return;
    const int words = blockIdx.x == 0 ? 400 : 0;
    ROLLED for (int i = 0; i < words; ++i) store_relaxed(out + i, i);
    if (blockIdx.x != 1) return;
    const bool first = load_relaxed(out).word[0] == 0, last = load_relaxed(out + 396).word[3] == 399;
    out[1024] = float(first), out[1025] = float(last);"""


def test_another_block_may_run_between_two_words_that_a_block_publishes(launch):
    """Without it, a block that publishes would be seen with all of its words or with none."""
    seen = {tuple(launch(PUBLISH, seed=seed).scratch()[1024:1026].tolist()) for seed in range(12)}
    assert (1, 0) in seen


ORDER = """if (lane() == 0) out[blockIdx.x * 2 + warp()] = float(atomicAdd(c.state + state_at::token, 1));"""


def test_order_is_a_function_of_the_seed(launch, seed):
    def order(n: int) -> list[float]:
        return launch(ORDER, seed=n).scratch()[:6].tolist()

    orders = [order(seed + n) for n in range(40)]  # each has one of two orders of warps
    assert orders[0] == order(seed), seed
    assert all(sorted(each) == [0, 1, 2, 3, 4, 5] for each in orders)
    assert any([at // 2 for at in np.argsort(each)] != [at // 2 for at in np.argsort(orders[0])] for each in orders)
    assert any((each[0] < each[1]) != (orders[0][0] < orders[0][1]) for each in orders), "warps in another order"


def test_rounding_to_bf16_is_to_nearest_even_and_keeps_nan(launch):
    """Torch's rounding of 4,096 bit patterns, first ties, infinities and NaNs."""
    special = [0x3F808000, 0x3F818000, 0x3F807FFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF]
    cases = "".join(f"case {number}: bits = {bits:#x}u; break; " for number, bits in enumerate(special))
    session = launch(
        "if (blockIdx.x != 0) return; for (int i = threadIdx.x; i < 4096; i += block_threads) {"
        f"unsigned bits = i * 2654435761u; switch (i) {{ {cases} default: break; }}"
        "out[i] = __uint_as_float(unsigned(to_bf16(__uint_as_float(bits))) << 16); }"
    )
    patterns = np.arange(4096, dtype=np.uint32) * np.uint32(2654435761)
    patterns[: len(special)] = special
    want = torch.from_numpy(patterns.view(np.float32)).bfloat16().float()
    assert want[:4].tolist() == [1.0, 1.015625, 1.0, float("inf")]
    torch.testing.assert_close(session.scratch()[:4096], want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("at_end", [False, True])
def test_a_buffer_touches_its_guard_with_one_end(at_end):
    buffer = GuardedBuffer(1000, torch.int16, at_end)
    buffer.tensor.zero_()
    assert buffer.intact()
    assert (buffer.start + 2048) % 4096 == 0 if at_end else buffer.start % 4096 == 0
    assert buffer.tensor.data_ptr() % 256 == 0
    beside = buffer._raw[buffer.start // 2 - 1 : buffer.start // 2 + 1001]  # as far as the canary reaches
    beside[-1 if not at_end else 0] = 0
    assert not buffer.intact()
