"""The simulation of a decode step against cases worked by hand, its limits, and what must never make a step faster."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from experiments.prediction.simulation import simulate
from experiments.prediction.task import Memory, Task

FAST = Memory(rate=inf, latency=0, l2_latency=0)
SLOW = Memory(rate=10, latency=50, l2_latency=20)


def total(tasks: list[Task], memory: Memory, layers: int = 1, steps: int = 1) -> float:
    return simulate([], tasks, [], layers, memory, steps).total


@pytest.mark.parametrize(
    ("task", "memory", "ns"),
    [
        (Task("a", size=1000, tile=100), SLOW, 150),  # 100 ns at 10 bytes a ns, then the latency of the last tile
        (Task("a", size=1000, total=4000, tile=100), SLOW, 450),  # four SMs share the memory
        (Task("a", size=1000, tile=100, rate=4), SLOW, 60 + 250),  # the first tile lands after 60; 4 bytes a ns
        (Task("a", size=1000, tile=100, place=100), SLOW, 10 * 60),  # one place: tile after tile
        (Task("a", size=1000, tile=100, place=100, lag=7), SLOW, 10 * 60 + 9 * 7),
        (Task("a", size=1000, tile=100, window=100), SLOW, 10 * 60),
        (
            Task("a", size=1000, tile=100, place=200),
            SLOW,
            5 * 60 + 10,
        ),  # two at a time, the second 10 ns after the first
        (Task("a", size=1000, tile=100, before=30), SLOW, 180),
        (Task("a", size=1000, tile=100, head=30), SLOW, 150),  # beside the loads
        (Task("a", size=1000, tile=100, head=180), SLOW, 180),
        (Task("a", size=1000, tile=100, tail=30), SLOW, 180),
        (Task("a", size=1000, tile=100), replace(SLOW, port=5), 60 + 9 * 20),  # the port gives a tile every 20 ns
        (Task("a", before=11, exchange=4, read=10), replace(FAST, port=5), 11 + 4 + 2),
    ],
)
def test_one_stage_by_hand(task, memory, ns):
    assert total([task], memory) == pytest.approx(ns)


def test_a_ring_that_runs_ahead_hides_the_exchange():
    """Two stages of 1,000 bytes and an exchange of 200 ns: the second stage's bytes land at 250, its input at 350."""
    one = Task("a", size=1000, tile=1000, exchange=200)
    two = Task("b", size=1000, tile=1000)
    assert total([one, two], SLOW) == 150 + 200 + 150
    ahead = [replace(task, ahead=True) for task in (one, two)]
    assert total(ahead, SLOW) == 150 + 200
    assert total([replace(task, place=1000) for task in ahead], SLOW) == 150 + 200, (
        "a place is free after the first stage"
    )
    assert total([replace(task, place=1500, window=1000) for task in ahead], SLOW) == 350
    slow = [replace(task, place=1000, lag=170) for task in ahead]
    assert total(slow, SLOW) == 150 + 170 + 150, "and here only 170 ns after it"


def test_what_is_prefetched_in_a_stage_is_a_hit_in_the_next():
    """While the first stage takes 300 ns, 1,000 bytes come into L2: 100 ns and a latency."""
    two = Task("b", size=1000, tile=500, fetched=1000)
    assert total([Task("a", before=300), two], SLOW) == 300 + 150
    assert total([Task("a", before=300, prefetch=1000, early=True), two], SLOW) == 300 + 20
    assert total([Task("a", before=300, prefetch=500, early=True), two], SLOW) == 300 + 100
    assert total([Task("a", before=110, prefetch=1000, early=True), two], SLOW) == 150, "not before it has landed"
    assert total([Task("a", before=300, prefetch=1000, exchange=90), two], SLOW) == 300 + 150, "begun when a publishes"
    assert total([Task("a", before=300, prefetch=1000, early=True), replace(two, fetched=0)], SLOW) == 300 + 150
    assert total([Task("a", before=300, prefetch=1000, early=True), two], replace(SLOW, l2_bytes=500)) == 300 + 100


def test_a_loader_prefetches_when_it_has_requested_a_stage():
    """500 bytes, requested before the first stage has its input, are every second tile of the next stage."""
    two = Task("b", size=1000, tile=100, fetched=500, evenly=True)
    assert total([Task("a", before=300, prefetch=500, by_loader=True), two], SLOW) == 300 + 100
    assert total([Task("a", before=10, prefetch=500, by_loader=True), two], SLOW) == 50 + 5 * 10 + 50
    first = Task("a", size=500, tile=500, prefetch=500, by_loader=True)
    assert total([first, replace(two, ahead=True)], SLOW) == 50 + 50 + 50 + 50, "in the order of the requests"


@pytest.mark.parametrize(
    ("kept", "ns"),
    [
        (500, 100),  # every second tile: memory serves the others in 50 ns, the last of these lands a latency later
        (250, 130),  # tiles 3 and 7 of 10; eight take 80 ns
        (1000, 20),
        (90, 150),  # less than a tile of this SM
    ],
)
def test_tiles_that_l2_has_take_no_time_of_memory(kept, ns):
    task = Task("a", size=1000, tile=100, kept=kept)
    assert total([task], SLOW) == pytest.approx(ns)
    assert total([replace(task, total=4000, kept=4 * kept)], replace(SLOW, rate=40)) == pytest.approx(ns)
    assert simulate([], [task], [], 1, SLOW).served == 1000 - kept


def test_tiles_that_l2_has_come_through_the_port_in_order():
    """5 bytes a ns: the first tile lands after 20 ns, each of the others 20 ns after the one before it."""
    task = Task("a", size=1000, tile=100, kept=1000)
    assert total([task], replace(SLOW, port=5)) == 20 + 9 * 20
    assert total([replace(task, window=100)], SLOW) == 10 * 20


def test_a_long_stage_has_as_many_tiles_out_of_l2_as_a_short_one():
    """One in twelve of 3,000 tiles: memory serves 2,750, and the last one comes out of L2 with the one before it."""
    assert total([Task("a", size=3e5, tile=100, kept=25e3)], SLOW) == pytest.approx(2750 * 10 + 50)


def test_an_exchange_waits_for_its_share_of_the_queue():
    """At 60 ns the first stage publishes; the second stage's 1,000 bytes, requested before, keep memory until 110."""
    tasks = [Task("a", size=100, tile=100, exchange=10), Task("b", size=1000, tile=1000, ahead=True)]
    assert total(tasks, SLOW) == 160
    assert simulate([], tasks, [], 1, replace(SLOW, queue_share=1)).exchanges == 10 + 50
    assert simulate([], tasks, [], 1, replace(SLOW, queue_share=0.5)).exchanges == 10 + 25


def test_the_second_step_of_two_begins_with_a_full_ring():
    tasks = [Task("a", size=1000, tile=1000, ahead=True, exchange=500)]
    assert total(tasks, SLOW) == 150 + 500
    assert total(tasks, SLOW, steps=2) == 500, "its bytes came during the exchange"


@pytest.fixture
def layer(seed):
    """Five stages of random sizes; some run ahead or prefetch."""
    random = np.random.default_rng(seed)
    ahead = bool(random.integers(2))

    def task(name: str) -> Task:
        low, high = random.uniform(100, 900, 2)
        return Task(
            name,
            size=(size := float(random.integers(2000, 60000))),
            total=size * float(random.uniform(1, 40)),
            rate=float(random.uniform(5, 100)),
            tile=float(random.integers(500, 3000)),
            place=float(random.integers(4000, 40000)),
            window=float(random.integers(4000, 40000)) if ahead else inf,
            ahead=ahead,
            before=low,
            head=high,
            lag=float(random.uniform(0, 100)),
            tail=float(random.uniform(0, 100)),
            exchange=float(random.integers(0, 2) * random.uniform(300, 2000)),
        )

    return [task(name) for name in "abcde"]


MEMORY = Memory(rate=300, latency=500, l2_latency=200, port=90, queue_share=0.25)


def test_infinite_bandwidth_leaves_the_chain(layer, seed):
    free = [replace(task, rate=inf, lag=0) for task in layer]
    chain = sum(task.before + task.head + task.tail + task.exchange for task in layer)
    assert total(free, FAST, 9) == pytest.approx(9 * chain), f"seed {seed}"


def test_without_latencies_only_bytes_count(layer, seed):
    bare = [
        replace(task, rate=inf, before=0, head=0, lag=0, tail=0, exchange=0, place=inf, window=inf) for task in layer
    ]
    size = sum(task.total for task in layer)
    assert total(bare, Memory(300, 0, 0), 9) == pytest.approx(9 * size / 300), f"seed {seed}"


def slower_steps(layer: list[Task], memory: Memory) -> Iterator[tuple[str, list[Task], Memory]]:
    """Name of what is slower, and the stages and the memory with it.

    More bytes of this SM are one tile more, of the same size, and of the same share of all bytes: the tiles of a stage
    are a rounded number, and with one tile more, or with a larger share of them, each could land earlier.
    """
    for name, factor in (("rate", 0.7), ("latency", 1.5), ("port", 0.7)):
        yield name, layer, replace(memory, **{name: getattr(memory, name) * factor})
    for name, factor in (("rate", 0.7), ("before", 2), ("head", 2), ("lag", 2), ("tail", 2), ("exchange", 2)):
        yield name, [replace(task, **{name: getattr(task, name) * factor}) for task in layer], memory
    for at, task in enumerate(layer):
        tile, more = task.size / task.tiles, 1 + 1 / task.tiles
        for name, changed in (
            ("bytes of others", replace(task, total=task.total + 3000)),
            ("a tile", replace(task, size=task.size * more, total=task.total * more, tile=tile)),
        ):
            yield f"{name}, stage {at}", [*layer[:at], changed, *layer[at + 1 :]], memory


def test_slower_parts_never_make_a_step_faster(layer, seed):
    """Where no exchange waits for memory's queue: every time is then a sum or the latest of others."""
    memory = replace(MEMORY, queue_share=0)
    base = total(layer, memory, 3)
    for name, tasks, slower in slower_steps(layer, memory):
        assert total(tasks, slower, 3) >= base - 1e-6, f"{name}, seed {seed}"


def test_slower_parts_save_no_more_than_waits_for_the_queue(layer, seed):
    """A ring that runs ahead and requests its tiles later has fewer bytes in memory's queue when the SM publishes.

    The exchange then waits for less, which can be more than what the slower part costs. Nothing else gets shorter, so a
    step takes at least what it takes without these waits. Where nothing runs ahead there are none.
    """
    least, base = total(layer, replace(MEMORY, queue_share=0), 3), total(layer, MEMORY, 3)
    assert base >= least - 1e-6, f"seed {seed}"
    if not layer[0].ahead:
        assert base == least, f"seed {seed}"
    for name, tasks, slower in slower_steps(layer, MEMORY):
        assert total(tasks, slower, 3) >= least - 1e-6, f"{name}, seed {seed}"


def test_a_later_request_can_make_an_exchange_shorter():
    """The one tile of the second stage is requested when the place of the first stage's tile is free, at 60 ns.

    That is when the first stage publishes. Memory is busy with the second tile until 160, half of it waited for:
    the second stage begins at 60 + 10 + 50. With a lag of 1 ns the request comes after the publication, and the stage
    begins at 60 + 10. Its head of 400 ns is longer than the load in both cases.
    """
    first = Task("a", size=100, tile=100, place=100, exchange=10)
    second = Task("b", size=1000, tile=1000, place=1000, ahead=True, head=400)
    share = replace(SLOW, queue_share=0.5)
    assert total([first, second], share) == 60 + 10 + 50 + 400
    assert total([replace(first, lag=1), second], share) == 60 + 10 + 400


def test_layers_that_are_not_simulated_take_what_they_would(layer, seed):
    """40 layers as one, without any comparison, against 40 that are compared."""
    head = Task("head", size=4e6, total=8e7, rate=30, tile=2000, place=16000, ahead=layer[0].ahead, lag=10)
    whole = simulate([], layer * 40, [head], 1, MEMORY, 2)
    short = simulate([], layer, [head], 40, MEMORY, 2)
    assert short.total == pytest.approx(whole.total, rel=1e-6), f"seed {seed}"
    assert short.stages == pytest.approx(whole.stages, rel=1e-5), f"seed {seed}"
    assert short.total == pytest.approx(short.exchanges + short.chains + short.loads), f"seed {seed}"


def test_a_long_stage_is_as_long_as_its_tiles():
    """10,000 tiles, one at a time: 60 ns and a lag of 7 each, the last without it."""
    task = Task("a", size=1e6, tile=100, place=100, lag=7)
    assert total([task], SLOW) == pytest.approx(10_000 * 67 - 7)
