"""Barriers in shared memory and asynchronous copies: rings that bring every byte once, and faults of their loaders."""

import re

import pytest
import torch

from common.errors import Crashed, Hung

pytestmark = pytest.mark.cpu

SHARED = "alignas(16) unsigned short tile[2][64]; Mbarrier full[2], empty[2];"
# One thread of the loader copies weights into a ring of two places; both warps read them.
READ = """named_sync(1, 96);
    for (unsigned tile = 0; tile < 6; ++tile) {
      while (!mbarrier_try_wait(s.full + tile % 2, tile / 2)) {}
      const unsigned pair = load_packet<4>(s.tile[tile % 2] + 2 * lane()).word[0];
      if (unsigned(warp()) == tile % 2 && blockIdx.x == 2) out[32 * tile + lane()] = bf16_high(pair);
      __syncwarp();
      if (lane() == 0) mbarrier_arrive(s.empty + tile % 2);
    }"""
ASK = "if (tile >= 2) while (!mbarrier_try_wait(s.empty + tile % 2, tile / 2 - 1)) {}"
START = """if (threadIdx.x == 64) {{
      for (int i = 0; i < 2; ++i) mbarrier_init(s.full + i, {}), mbarrier_init(s.empty + i, 2);
      mbarrier_init_fence();
    }}
    named_sync(1, 96);
    """
BY_ONE = f"""{START.format(1)} if (lane() != 0) return;
    for (unsigned tile = 0; tile < 6; ++tile) {{
      {ASK}
      mbarrier_arrive_expect(s.full + tile % 2, 128);
      for (int half = 0; half < 2; ++half)
        copy_bulk(s.tile[tile % 2] + 32 * half, c.weights + 64 * tile + 32 * half, 64, s.full + tile % 2);
    }}"""
# A loader warp: each lane copies 16 bytes of each tile and hands them over.
ARRIVES, ENDS = "mbarrier_arrive_copied(s.full + tile % 2);", "copy_commit(); copy_wait<0>();"
BY_LANES = f"""{START.format(32)} for (unsigned tile = 0; tile < 6; ++tile) {{
      {ASK}
      for (int at = 8 * lane(); at < 64; at += 256)
        copy_async(s.tile[tile % 2] + at, c.weights + 64 * tile + at, L2::pass);
      {ARRIVES}
    }}
    {ENDS}"""
WANTED = [float((2 * i + 1) % 97) for i in range(192)]  # weights count 0, 1, 2, ..., 96, 0, ...


HANDED_OVER = BY_LANES.replace(ENDS, "")  # as libcu++'s pipelines with roles: a thread may end before its copies land


@pytest.mark.parametrize(
    ("load", "field"), [(BY_ONE, "copied_bulk"), (BY_LANES, "copied_async"), (HANDED_OVER, "copied_async")]
)
def test_a_ring_brings_every_byte_once_and_in_order(launch, seed, load, field):
    session = launch(READ, SHARED, seed=seed, load=load, races=True)
    assert session.scratch()[:192].tolist() == WANTED
    session.reset([1], 0)
    counts = session.count()
    copied = {each: counts.total(each) for each in ("copied_bulk", "copied_async")}
    assert copied == {"copied_bulk": 0, "copied_async": 0, field: 3 * 6 * 128}


FAULTS = {  # changes of BY_LANES: (text, what stands there instead), ..., and what is found
    "an arrival before its copies": (
        [(ARRIVES, ""), ("for (int at", f"{ARRIVES} for (int at")],
        "nothing orders this (read|write) of shared memory",
    ),
    "an arrival twice": ([(ARRIVES, 2 * ARRIVES)], "more arrivals than the mbarrier's phase takes"),
    "a lane that does not arrive": ([(ARRIVES, f"if (lane() > 0) {ARRIVES}")], "no block can continue"),
    "a slot overwritten before it is read": ([(ASK, "")], "nothing orders this write|more arrivals"),
    "a store into the target in flight": (
        [(ENDS, f"if (lane() == 0) s.tile[1][3] = 5; {ENDS}")],
        "nothing orders this write of shared memory",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_loader_whose_lanes_copy_is_found(launch, name, seed):
    edits, expected = FAULTS[name]
    load = BY_LANES
    for old, new in edits:
        assert load.count(old) == 1
        load = load.replace(old, new)
    with pytest.raises((Crashed, Hung)) as found:
        launch(READ, SHARED, seed=seed, load=load, races=True)
    assert re.search(expected, str(found.value)), found.value


ALONE = 'asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(s.full + tile % 2)));'


@pytest.mark.parametrize("arrives", [ARRIVES, ALONE])
def test_a_loader_that_hands_its_copies_over_releases_what_it_has_read(launch, seed, arrives):
    """The arrival of the copies alone does not, so whoever waits for them may not write what the loader read."""
    seen = "if (blockIdx.x == 2 && out[200 + lane()] == 1) return;"
    load = BY_LANES.replace(ARRIVES, f"{seen} {arrives}")
    write = f"{READ} if (blockIdx.x == 2 && warp() == 0) out[200 + lane()] = 1;"
    if arrives == ARRIVES:
        assert launch(write, SHARED, seed=seed, load=load, races=True).scratch()[200:232].tolist() == [1] * 32
    else:
        with pytest.raises(Crashed, match=r"nothing orders this (read|write) of"):
            launch(write, SHARED, seed=seed, load=load, races=True)


# Three barriers, and one thread that copies and reads: entries of the cache are bf16.
ONE = """if (threadIdx.x != 0) return;
    for (int i = 0; i < 2; ++i) mbarrier_init(s.full + i, 1);
    mbarrier_init_fence();
    const auto ask = [&](int at, const void *from) {{
      mbarrier_arrive_expect(s.full + at, 128); copy_bulk(s.tile[at], from, 128, s.full + at); }};
    const auto wait = [&](int at) {{ while (!mbarrier_try_wait(s.full + at, 0)) {{}} }};
    const auto see = [&](int at) {{ out[at] = bf16_low(s.tile[0][1]); out[at + 1] = bf16_low(s.tile[1][1]); }};
    {}"""


def test_the_target_of_a_copy_is_poison_until_it_lands(launch, seed):
    """At a wait at the latest."""
    body = ONE.format("ask(0, c.weights + 64); ask(1, c.weights); see(0); wait(0); wait(1); see(2);")
    out = torch.stack([launch(body, SHARED, 1, seed=seed + n).scratch()[:4] for n in range(4)])
    assert out[:, :2].isnan().any()
    assert out[:, 2:].tolist() == 4 * [[65, 1]]


def test_stores_before_a_proxy_fence_may_be_overwritten_and_copied(launch, seed):
    store = "s.tile[0][9] = 3; c.cache[12] = Cache(0x4040); fence_proxy_async(); ask(0, c.weights); "
    body = ONE.format(store + "ask(1, c.cache); wait(0); wait(1); out[0] = s.tile[0][9]; out[1] = s.tile[1][12];")
    session = launch(body, SHARED, 1, seed=seed, races=True)
    assert session.scratch()[:2].tolist() == [0x4110, 0x4040]  # 9 and 3 as bf16
