"""Race detector of the PTX device: what orders memory and what does not, and the faults that only it finds.

Every case is found with any seed, so each runs with one that is new.
"""

import re
from contextlib import closing
from dataclasses import replace

import pytest
from bare_kernel import bare_kernel
from composed import Composed
from sampled import sampled

from common.devices.ptx.device import PtxDevice
from common.errors import Crashed, Race
from common.model.stages import LAYER_STAGES
from common.model.weights import load
from tests.strength.mutants.judge import RACES, grounds
from tests.strength.mutants.mutation import read_mutants

pytestmark = pytest.mark.cpu
BARRIER, NOTHING = "block_barrier();", ";"
COPY = """const bool first = threadIdx.x == 0;
if (first) {{ copy_async<16>(s.a, c.weights); copy_commit(); }}
{early}
if (first) copy_wait<0>();
{late}
out[blockIdx.x * 64 + threadIdx.x] = s.a[0];"""
BODIES = {  # its body, and the two lines of its race in "test", if it has one
    "copy, then a barrier after the wait": (COPY.format(early=NOTHING, late=BARRIER), None),
    "copy, with the barrier before the wait": (COPY.format(early=BARRIER, late=NOTHING), {2, 6}),
    "a shuffle orders no memory": (
        """if (lane() == 0) s.a[warp()] = 1;
        __shfl_xor_sync(all_lanes, 1, 1);
        if (lane() == 1 && blockIdx.x == 0) out[warp()] = s.a[warp()];""",
        {1, 3},
    ),
    "a warp barrier does, within its warp": (
        """if (lane() == 0) s.a[warp()] = 1;
        __syncwarp();
        if (lane() == 1 && blockIdx.x == 0) out[warp()] = s.a[warp()];""",
        None,
    ),
    "but not beyond it": (
        """if (threadIdx.x == 0) s.a[0] = 1;
        __syncwarp();
        if (threadIdx.x == 32) out[blockIdx.x] = s.a[0];""",
        {1, 3},
    ),
    "a block that has ended orders nothing for another": (
        """if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = 1;
        if (threadIdx.x == 0 && blockIdx.x == 2)
            out[1] = out[0];""",
        {1, 3},
    ),
    "two atomics and a plain write": (
        """if (threadIdx.x == 0) add_acq_rel(c.state + state_at::arrived, 1);
        if (threadIdx.x == 1)
            c.state[state_at::arrived] = 0;""",
        {1, 3},
    ),
    "a plain write after the last atomic of all": (  # observation order
        """if (threadIdx.x > 0) return;
        if (atomicAdd(c.state + state_at::arrived, 1) == 2)
            c.state[state_at::arrived] = 0;""",
        None,
    ),
    "a plain write after the last but one": (
        """if (threadIdx.x > 0) return;
        if (atomicAdd(c.state + state_at::arrived, 1) == 1)
            c.state[state_at::arrived] = 0;""",
        {2, 3},
    ),
    "threads of a block that store one value": ("out[blockIdx.x] = 1;", None),
    "blocks that store one value": ("if (threadIdx.x == 0)\n  out[0] = 1;", {2}),
    "a read and a write of the same launch, in order": ("out[blockIdx.x * 64 + threadIdx.x] = 1;", None),
}


@pytest.fixture
def run(cpu_cache, tiny, seed):
    """run(source): one step of `tiny` from position 0 with the race detector, as the first or after `barriers`."""

    def run_(source, blocks=3, barriers=0):
        device, weights = (PtxDevice(cpu_cache, seed=seed, races=True), load("synthetic", tiny, None, cpu_cache, seed))
        with closing(device.session(device.compile(source), weights[2].flat, blocks)) as session:
            session.reset([1], 0, barriers=barriers)
            session.run()

    return run_


@pytest.mark.parametrize("name", BODIES)
def test_what_orders_memory_and_what_does_not(run, tiny, name):
    body, lines = BODIES[name]
    source = bare_kernel(tiny, body, "alignas(16) float a[64];")
    if lines is None:
        run(source)
        return
    with pytest.raises(Race) as error:
        run(source)
    assert {int(line) for line in re.findall(r"test:(\d+)", error.value.report)} == lines


def test_the_epoch_of_a_barrier_may_pass_any_value(run, tiny):
    run(Composed(("atomic_barrier",)).source(tiny), barriers=2**32 - 6)


@pytest.mark.parametrize("stage", sampled(("embed", *LAYER_STAGES, "final_norm", "lm_head"), 2))
def test_a_dropped_grid_barrier_is_found(run, tiny, stage):
    source = Composed(()).source(tiny)
    text = source.text.replace("S != Stage::argmax", f"S != Stage::argmax && S != Stage::{stage}", 1)
    assert text != source.text
    with pytest.raises(Race, match="nothing orders"):
        run(replace(source, text=text))


@pytest.mark.parametrize(
    "mutant", sampled([each for each in read_mutants() if each.expect == "race"], 4), ids=lambda mutant: mutant.name
)
def test_a_fault_that_only_the_detector_finds(mutant, cpu_cache, seed):
    """`make soak` tries all of them. Of a barrier in shared memory it says that nothing orders its first use.

    In some schedules a slot that is given back too early is filled twice, before a lane reads what is not there.
    """
    (ground,) = grounds(mutant, cpu_cache)
    found = next(filter(None, (ground.found(trial, seed) for trial in RACES)), "")
    assert re.search("data race: |nothing orders this|more arrivals than the mbarrier", found)


def test_an_index_outside_a_local_variable_is_found(run, tiny):
    with pytest.raises(Crashed, match=r"outside local memory: 4 bytes at .* test:2 "):
        run(bare_kernel(tiny, "volatile float own[4];\nown[blockIdx.x + 2] = 1;"))
