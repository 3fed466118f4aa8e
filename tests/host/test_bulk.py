"""Barriers in shared memory and bulk copies of the host device: copies land late, and every misuse names its line."""

import re

import pytest

from common.errors import Crashed, Hung

pytestmark = pytest.mark.host

SHARED = "alignas(16) unsigned short tile[2][64]; Mbarrier full[2], empty, never; float a[64];"
# One thread of the loader copies weights into a ring of two places; both warps read them.
INIT = """if (port::thread() == 64) {
    port::mbarrier_init(s.full, 1); port::mbarrier_init(s.full + 1, 1); port::mbarrier_init(&s.empty, 2);
    port::mbarrier_init_fence();
  } port::named_sync(1, 96);"""
WAIT, ASK = (
    "port::mbarrier_try_wait(s.full + {0}, {1});",
    "port::copy_bulk(s.tile[{0}], c.weights + {1}, 128, s.full + {0});",
)
EXPECT = "port::mbarrier_arrive_expect(s.full + {0}, {1});"
RING = (
    """port::named_sync(1, 96);
    for (unsigned tile = 0; tile < 6; ++tile) {
      port::mbarrier_try_wait(s.full + tile % 2, tile / 2);
      const unsigned pair = port::load<Data::weights, 4>(s.tile[tile % 2] + 2 * lane()).word[0];
      if (unsigned(warp()) == tile % 2 && port::block() == 2) out[32 * tile + lane()] = bf16_high(pair);
      port::warp_barrier();
      if (lane() == 0) port::mbarrier_arrive(s.empty + tile % 2);
    }""",
    """if (port::thread() == 64) {
      for (int i = 0; i < 2; ++i) port::mbarrier_init(s.full + i, 1), port::mbarrier_init(s.empty + i, 2);
      port::mbarrier_init_fence();
    }
    port::named_sync(1, 96);
    if (lane() != 0) return;
    for (unsigned tile = 0; tile < 6; ++tile) {
      port::mark(tile < 4 ? Stage::qkv : Stage::down, 1);
      if (tile >= 2) port::mbarrier_try_wait(s.empty + tile % 2, tile / 2 - 1);
      port::mbarrier_arrive_expect(s.full + tile % 2, 128);
      for (int half = 0; half < 2; ++half)
        port::copy_bulk(s.tile[tile % 2] + 32 * half, c.weights + 64 * tile + 32 * half, 64, s.full + tile % 2);
    }""",
)


def test_a_ring_brings_every_byte_once_and_in_order(launch, seed):
    session = launch(
        RING[0], "alignas(16) unsigned short tile[2][64]; Mbarrier full[2], empty[2];", seed=seed, load=RING[1]
    )
    assert session.scratch()[:192].tolist() == [float((2 * i + 1) % 97) for i in range(192)]
    assert session.counts().of("qkv", "copied_bulk") == 3 * 4 * 128
    assert session.counts().of("down", "copied_bulk") == 3 * 2 * 128
    assert session.counts().total("block_barriers") == 3  # a loader is not in it; the named one is


def test_a_copy_lands_when_a_thread_waits_and_its_target_is_poison_before(launch, seed):
    """Also a copy for another barrier, on which no thread waits."""
    session = launch(
        f"""{INIT.replace("== 64", "== 0").replace("96", "64")} if (port::thread() != 0) return;
        {EXPECT.format(0, 128)} {EXPECT.format(1, 128)} {ASK.format(0, 64)} {ASK.format(1, 0)}
        auto see = [&](int at) {{ out[at] = bf16_low(s.tile[0][1]); out[at + 1] = bf16_low(s.tile[1][1]); }};
        if (port::block() == 1) {{ see(0); {WAIT.format(0, 0)} see(2); {WAIT.format(1, 0)} see(4); }}
        {WAIT.format(0, 0)} {WAIT.format(1, 0)}""",
        SHARED,
        seed=seed,
    )
    out = session.scratch()[:6]
    assert out.isnan().tolist() == [True, True, False, True, False, False]
    assert out[[2, 4, 5]].tolist() == [65, 65, 1]


# A loader warp: each lane copies 16 bytes of each tile and hands them over.
ASYNC = """if (port::thread() == 64) {
      for (int i = 0; i < 2; ++i) port::mbarrier_init(s.full + i, 32), port::mbarrier_init(s.empty + i, 2);
      port::mbarrier_init_fence();
    }
    port::named_sync(1, 96);
    for (unsigned tile = 0; tile < 6; ++tile) {
      if (tile >= 2) port::mbarrier_try_wait(s.empty + tile % 2, tile / 2 - 1);
      for (int at = 8 * lane(); at < 64; at += 256)
        port::copy_async(s.tile[tile % 2] + at, c.weights + 64 * tile + at, L2::pass);
      port::mbarrier_arrive_copied(s.full + tile % 2);
    }
    port::copy_commit(); port::copy_wait<0>();"""
PLACES = "alignas(16) unsigned short tile[2][64]; Mbarrier full[2], empty[2];"


def test_a_ring_filled_by_all_lanes_brings_every_byte_once_and_in_order(launch, seed):
    session = launch(RING[0], PLACES, seed=seed, load=ASYNC)
    assert session.scratch()[:192].tolist() == [float((2 * i + 1) % 97) for i in range(192)]
    assert (session.counts().total("copied_async"), session.counts().total("copied_bulk")) == (3 * 6 * 128, 0)


ARRIVES = "port::mbarrier_arrive_copied(s.full + tile % 2);"
WAITS = "if (tile >= 2) port::mbarrier_try_wait(s.empty + tile % 2, tile / 2 - 1);"
ENDS = "port::copy_commit(); port::copy_wait<0>();"
FAULTS = {  # in such a loader: (text, what stands there instead), ..., and what is found
    "an arrival before its copies": (
        [(ARRIVES, ""), ("for (int at", f"{ARRIVES} for (int at")],
        "a copy is under way when its thread ends|written while the copy was in flight|MISMATCH",
    ),
    "an arrival twice": ([(ARRIVES, 2 * ARRIVES)], "an arrival too many"),
    "a lane that does not arrive": ([(ARRIVES, f"if (lane() > 0) {ARRIVES}")], "Hung"),
    "a slot overwritten before it is read": ([(WAITS, "")], "an arrival too many|overlapping|MISMATCH|parity"),
    "an end before its copies": ([(ENDS, "")], "a copy is under way when its thread ends"),
    "a store into the target in flight": (
        [(ENDS, f"if (lane() == 0) s.tile[1][3] = 5; {ENDS}")],
        "the target of a copy was written while the copy was in flight",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_loader_whose_lanes_copy_is_found(launch, name, seed):
    edits, expected = FAULTS[name]
    load = ASYNC
    for old, new in edits:
        assert load.count(old) == 1
        load = load.replace(old, new)
    try:
        out = launch(RING[0], PLACES, seed=seed, load=load, timeout=300).scratch()[:192]
    except (Crashed, Hung) as error:
        found = f"{type(error).__name__} {error}"
    else:
        found = "" if out.tolist() == [float((2 * i + 1) % 97) for i in range(192)] else "MISMATCH"
    assert re.search(expected, found), found


MISUSES = {  # what the loader's thread does after INIT, and the fault; {n} is the line
    "use before initialization": (
        "port::mbarrier_arrive(&s.never);",
        "a barrier that is not initialized at loader:{n}",
    ),
    "a second initialization": (
        "port::mbarrier_init(s.full, 1);",
        "a second initialization, the barrier at byte 256 .* at loader:{n}",
    ),
    "no arrivals": ("port::mbarrier_init(&s.never, 0);", "a barrier counts 1 to 1048575 arrivals at loader:{n}"),
    "a barrier outside shared memory": (
        "port::mbarrier_init(reinterpret_cast<Mbarrier *>(out), 1);",
        "mbarrier_init of the scratch buffer at byte 0 at .*loader:{n}",
    ),
    "a copy before the fence": (
        "port::mbarrier_init(&s.never, 1); port::mbarrier_arrive_expect(&s.never, 16); "
        "port::copy_bulk(s.tile, c.weights, 16, &s.never);",
        "a bulk copy before the fence that follows its initialization, .* at loader:{n}",
    ),
    "an arrival too many": (
        f"{EXPECT.format(0, 16)} port::mbarrier_arrive(s.full);",
        "an arrival too many: phase 0 of .* waits for 0 of 1 arrivals and 16 bytes, 0 of them in .* at loader:{n}",
    ),
    "more bytes than expected": (
        f"{EXPECT.format(0, 112)} {ASK.format(0, 0)}",
        "a bulk copy of 128 bytes where 112 more are expected, the barrier at byte 256 of shared memory at loader:{n}",
    ),
    "bytes before they are expected": (
        ASK.format(1, 0),
        "a bulk copy of 128 bytes where 0 more are expected, .* at loader:{n}",
    ),
    "more bytes than a barrier counts": (
        EXPECT.format(0, 1 << 20),
        "more than 1048575 bytes are expected, .* at loader:{n}",
    ),
    "a phase ahead": (
        WAIT.format(0, 1),
        "a wait for phase 1 while phase 0 is in progress: a GPU sees the parity of a phase only, .* at loader:{n}",
    ),
    "a phase long ago": (
        "port::mbarrier_arrive(s.full); port::mbarrier_arrive(s.full); " + WAIT.format(0, 0),
        "a wait for phase 0 while phase 2 is in progress.* at loader:{n}",
    ),
    "a size that is no multiple of 16": (
        f"{EXPECT.format(0, 64)} port::copy_bulk(s.tile, c.weights, 24, s.full);",
        "a bulk copy whose size or addresses are not multiples of 16 bytes at loader:{n}",
    ),
    "a source between two multiples of 16": (
        f"{EXPECT.format(0, 64)} port::copy_bulk(s.tile, c.weights + 4, 16, s.full);",
        "a bulk copy whose size or addresses are not multiples of 16 bytes at loader:{n}",
    ),
    "what threads write as the source": (
        f"{EXPECT.format(0, 64)} port::copy_bulk(s.tile, c.scratch, 16, s.full);",
        "copy_bulk of the scratch buffer at byte 0 at loader:{n}",
    ),
    "an entry of the cache that was stored after the fence": (
        f"port::store_kv(c.cache + 12, 1); {EXPECT.format(0, 64)} port::copy_bulk(s.tile, c.cache, 64, s.full);",
        "a bulk copy of bytes that were stored after this thread's last fence_proxy_async at loader:{n}",
    ),
    "a target that ends outside": (
        f"{EXPECT.format(0, 1024)} port::copy_bulk(s.tile, c.weights, 1024, s.full);",
        "copy_bulk to an address outside the shared buffer, .* at loader:{n}",
    ),
    "a copy over a barrier": (
        f"{EXPECT.format(0, 272)} port::copy_bulk(s.tile, c.weights, 272, s.full);",
        "a bulk copy over a barrier at loader:{n}",
    ),
    "two copies into one place": (
        f"{EXPECT.format(0, 256)} {ASK.format(0, 0)} {ASK.format(0, 64)}",
        "two copies in flight to overlapping targets at loader:{n}",
    ),
    "over bytes that were stored": (
        f"s.tile[0][9] = 3; {EXPECT.format(0, 128)} {ASK.format(0, 0)}",
        "a bulk copy over bytes that were stored after the last fence_proxy_async at loader:{n}",
    ),
    "a store into the target in flight": (
        f"{EXPECT.format(1, 128)} {ASK.format(1, 0)} s.tile[1][9] = 3; {WAIT.format(1, 0)}",
        "the target of a bulk copy was written while the copy was in flight: it was issued at loader:{n}",
    ),
    "a store into the source in flight": (
        f"{EXPECT.format(0, 64)} port::copy_bulk(s.tile, c.cache, 64, s.full); port::store_kv(c.cache + 12, 1); "
        + WAIT.format(0, 0),
        "the source of a bulk copy was written while the copy was in flight: it was issued at loader:{n}",
    ),
    "a store into a barrier": (
        "s.full[0] = 0; port::mbarrier_arrive(s.full);",
        "its memory was overwritten, .* at loader:{n}",
    ),
    "an end before its copies": (
        f"{EXPECT.format(0, 128)} {ASK.format(0, 0)} {EXPECT.format(1, 128)} {ASK.format(1, 0)} {WAIT.format(0, 0)}",
        "a bulk copy is under way when its block ends: it was issued at loader:{n}",
    ),
    "a target whose address is aligned by chance": (
        f"{EXPECT.format(0, 16)} port::copy_bulk(reinterpret_cast<char *>(s.tile) + 8, c.weights, 16, s.full);",
        "a bulk copy whose size or addresses are not multiples of 16 bytes at loader:{n}",
    ),
    "the loader in a block barrier": ("port::block_barrier();", "a loader warp in a block barrier at loader:{n}"),
}


def misuse() -> str:
    """One kernel that has them all; the token chooses."""
    cases = [f"case {n}: {body} break;" for n, (body, _) in enumerate(MISUSES.values())]
    first = "if (port::thread() != 64) return port::named_sync(1, 96); "
    return "\n".join([first + " ".join(INIT.split()) + " switch (c.token) {", *cases, "}"])


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_names_its_line(launch, name):
    number = list(MISUSES).index(name)
    with pytest.raises(Crashed, match=MISUSES[name][1].format(n=2 + number)):
        launch("port::named_sync(1, 96);", SHARED, blocks=1, token=number, load=misuse())


def test_stores_before_a_proxy_fence_may_be_overwritten(launch):
    session = launch(
        f"""{INIT.replace("== 64", "== 0").replace("96", "64")} if (port::thread() != 0) return;
        s.tile[0][9] = 3; port::fence_proxy_async(); {EXPECT.format(0, 128)} {ASK.format(0, 0)} {WAIT.format(0, 0)}
        out[0] = bf16_low(s.tile[0][9]);""",
        SHARED,
        blocks=1,
    )
    assert session.scratch()[0] == 9


def test_entries_of_the_cache_stored_before_a_proxy_fence_are_copied(launch, seed):
    """Store of another thread, which an arrival orders before the fence; entries beside those copied may be newer."""
    store = "if (port::thread() == 5) { port::store_kv(c.cache + 12, 0x4040); port::mbarrier_arrive(&s.never); }"
    load = f"""if (port::thread() == 64) port::mbarrier_init(&s.never, 1); {INIT} if (lane() != 0) return;
        port::mbarrier_try_wait(&s.never, 0); port::fence_proxy_async();
        port::store_kv(c.cache + 16, 1); {EXPECT.format(0, 32)} port::copy_bulk(s.tile, c.cache, 32, s.full);"""
    session = launch(
        f"port::named_sync(1, 96); {store} {WAIT.format(0, 0)} out[0] = bf16_low(s.tile[0][12]);",
        SHARED,
        blocks=1,
        seed=seed,
        load=load,
    )
    assert session.scratch()[0] == 3


def test_bytes_that_never_come_are_named(launch):
    load = f"{INIT} if (lane() == 0) {{ port::mark(Stage::down, 1); {EXPECT.format(0, 192)} {ASK.format(0, 0)} }}"
    with pytest.raises(Hung) as hung:
        launch(f"port::named_sync(1, 96); {WAIT.format(0, 0)}", SHARED, blocks=2, load=load, timeout=300)
    report = hung.value.report
    assert (
        "block 0: 64 threads (first 0) waiting for a phase at test:1, stage embed, layer 0: phase 0 of the " in report
    )
    assert "at byte 256 of shared memory waits for 0 of 1 arrivals and 64 bytes, 0 of them in flight" in report


def test_arrivals_that_never_come_are_named(launch):
    body = f"port::named_sync(1, 96); if (port::thread() == 33) port::mbarrier_arrive(&s.empty); {WAIT.format(1, 0)}"
    load = f"{INIT} port::mbarrier_try_wait(&s.empty, 0);"
    with pytest.raises(Hung) as hung:
        launch(body, SHARED, blocks=1, load=load, timeout=300)
    assert "32 threads (first 64) waiting for a phase at loader:" in hung.value.report
    assert (
        "phase 0 of the barrier at byte 272 of shared memory waits for 1 of 2 arrivals and 0 bytes" in hung.value.report
    )
