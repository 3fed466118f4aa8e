"""ThreadSanitizer on the host device: no report for any variant, and both source lines of every planted race."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import torch
from racy import (
    BARRIER,
    BARRIER_STAGES,
    BLOCK_BARRIERS,
    BLOCKS,
    BODIES,
    CLEAN,
    NAMED_BARRIERS,
    ORDERS,
    THREADS,
    TINY,
    kernel,
    source_of,
    without_block_barrier,
    without_grid_barrier,
    without_named_barrier,
    without_order,
)
from sampled import sampled

from common import ROOT
from common.compile.source import KERNEL, Source, build
from common.devices.host.sanitized import SanitizedDevice
from common.devices.host.sanitizers import data_races
from common.errors import Crashed, Hung, Race, Refused
from common.model.layout import Layout

pytestmark = pytest.mark.host
GRID_DROPPED, BLOCK_DROPPED, WEAKENED = sampled(BARRIER_STAGES, 2), sampled(BLOCK_BARRIERS, 2), sampled(ORDERS, 2)
STACKS = sampled(CLEAN, 5)
SIDE = re.compile(
    r"(?P<kind>(?:atomic )?(?:read|write)) at (?P<place>\S+:\d+)(?: called at (?P<variant>\S+))?"
    r"(?: in (?P<stage>\w+))? by"
)


@pytest.fixture(scope="module")
def device(host_cache) -> SanitizedDevice:
    """The device, with every kernel of this file compiled in parallel."""
    device = SanitizedDevice(host_cache)
    device.compile(build([], TINY, THREADS))  # the runtime, once
    sources = [
        *(source_of(CLEAN[name]) for name in STACKS),
        *map(without_grid_barrier, GRID_DROPPED),
        *map(without_block_barrier, BLOCK_DROPPED),
        *map(without_order, WEAKENED),
        *map(without_named_barrier, NAMED_BARRIERS),
        *(kernel(body) for body, _ in BODIES.values()),
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(device.compile, sources))
    return device


@pytest.fixture
def run(device, synthetic, seed):
    """run(source, ...): decodes `steps` steps from position 30; returns the state and the counts."""

    def run_(source: Source, blocks: int = 3, schedule: int = seed, steps: int = 1):
        weights = synthetic(TINY, seed)
        device.seed = schedule
        with closing(device.session(device.compile(source), weights, blocks)) as session:
            session.reset([1] * 31, 30, torch.zeros(Layout(TINY).cache.shape, dtype=torch.bfloat16))
            session.run(steps)
            return session.state(), session.counts()

    return run_


def pairs(error: pytest.ExceptionInfo) -> list[list[dict[str, str]]]:
    """The races of the report: two sides each, with kind, place and stage. The error message has the first race."""
    assert str(error.value).startswith("data race: ")
    assert "\n" not in str(error.value)
    lines = [[side.groupdict() for side in SIDE.finditer(line)] for line in error.value.report.splitlines()]
    found = [sides for sides in lines if sides]  # the report of a deadlock follows the races
    assert all(len(sides) == 2 for sides in found), error.value.report
    assert all(str(side["place"]) in str(error.value) for side in found[0])
    return found


def assert_accesses(sides: list[dict[str, str]], said: str) -> None:
    """Each side names a line of a file in the repository, and something is read or written there."""
    for side in sides:
        file, line = side["place"].split(":")
        statement = (ROOT / file).read_text().splitlines()[int(line) - 1].split("//")[0]
        assert re.search(r"port::|load_floats|\[.*\]|\(c, |= ", statement), (side, statement, said)


@pytest.mark.parametrize("name", STACKS)
def test_every_variant_is_clean(run, name):
    state, counts = run(source_of(CLEAN[name]), blocks=5, steps=2)
    assert state[0] == 32  # the position: two steps were done
    assert counts.total("shuffles") > 0


@pytest.mark.parametrize("stage", GRID_DROPPED)
def test_a_dropped_grid_barrier_is_named(run, stage, seed):
    """Not under each schedule: a block that sleeps before the stage until all others have finished it and arrived at
    the next barrier acquires both by one load. One in more than a hundred does.
    """
    source = without_grid_barrier(stage)
    with pytest.raises(Race) as error:
        assert not [run(source, schedule=schedule) for schedule in range(seed, seed + 4)], "no schedule shows a race"
    found = pairs(error)
    for sides in found:
        assert_accesses(sides, error.value.report)
    between = [{side["stage"] for side in sides if side["kind"] == "write"} for sides in found]
    assert {stage} in between, (stage, error.value.report)


@pytest.mark.parametrize("site", BLOCK_DROPPED)
def test_a_dropped_block_barrier_is_named(run, site):
    with pytest.raises(Race) as error:
        run(without_block_barrier(site), BLOCKS.get(site, 3))
    for sides in pairs(error):
        assert_accesses(sides, error.value.report)


def test_all_block_barriers_are_known():
    files = [*(KERNEL.glob("*.cuh")), *(ROOT / "variants").glob("*.cu")]
    assert sum(file.read_text().count(BARRIER) for file in files) == len(BLOCK_BARRIERS)


@pytest.mark.parametrize("name", WEAKENED)
def test_a_missing_release_or_acquire_is_named(run, name):
    with pytest.raises(Race) as error:
        run(without_order(name), blocks=5, steps=3)
    for sides in pairs(error):
        assert_accesses(sides, error.value.report)


@pytest.mark.parametrize("name", NAMED_BARRIERS)
def test_a_missing_named_barrier_is_named_in_the_variant(run, name):
    with pytest.raises(Race) as error:
        run(without_named_barrier(name))
    files = {(side["variant"] or side["place"]).split(":")[0] for sides in pairs(error) for side in sides}
    assert files == {"variants/warp_split.cu"}, error.value.report


@pytest.mark.parametrize("name", BODIES)
def test_what_orders_memory_and_what_does_not(run, name):
    body, expected = BODIES[name]
    if expected is None:
        run(kernel(body))
        return
    with pytest.raises(Race) as error:
        run(kernel(body))
    found = [{f"{side['kind']} {side['place'].partition(':')[2]}" for side in sides} for sides in pairs(error)]
    assert set(expected) in found, error.value.report


def test_a_race_keeps_what_the_kernel_left_and_the_session(device, synthetic, seed):
    device.seed = seed
    with closing(device.session(device.compile(without_grid_barrier("qkv")), synthetic(TINY, seed), 3)) as session:
        for _ in range(2):
            session.reset([1], 0)
            with pytest.raises(Race):
                session.run()
            assert session.state()[0] == 1


def test_a_hang_is_still_a_hang(run):
    with pytest.raises(Hung) as error:
        run(kernel("if (port::thread() != 5) port::block_barrier();"))
    assert "63 threads (first 0) waiting at a block barrier at test:1" in error.value.report


def test_a_fault_of_the_process_is_told(run):
    with pytest.raises(Crashed, match="SEGV at test:1"):
        run(kernel("*reinterpret_cast<volatile int *>(port::block() + 16) = 1;"))


def test_more_threads_than_it_can_follow_are_refused(device, synthetic, seed):
    program = device.compile(build([], TINY, THREADS))
    with pytest.raises(Refused, match="200 blocks of 64 threads"):
        device.session(program, synthetic(TINY, seed), 200)


REPORT = """==================
WARNING: ThreadSanitizer: data race (pid=1)
  Atomic write of size 4 at 0x7f by thread T2 (mutexes: write M1):
    #0 port::add(unsigned*) /r/common/devices/host/runtime/port_host.hpp:9 (k.exe+0x1)
    #1 x(Context const&) common/kernel/barrier.cuh:34 (k.exe+0x1)

  Previous read of size 4 at 0x7f by thread T7:
    [failed to restore the stack]

  Thread T2 'block 0 thread 1' (tid=0, running) created by main thread at:
    #0 host::tsan::take(char const*) /r/common/devices/host/runtime/sanitizer.hpp:35 (k.exe+0x2)
==================
"""


def test_a_place_that_thread_sanitizer_no_longer_knows_is_reported():
    assert data_races(REPORT) == [
        "atomic write at common/kernel/barrier.cuh:34 by block 0 thread 1, "
        "and read at a line that ThreadSanitizer no longer knows by the host"
    ]
