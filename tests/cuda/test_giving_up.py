"""Grid barrier that times out on a GPU: the kernel ends, reports the waiting blocks, and later processes can run."""

import dataclasses

import pytest
from in_child import in_child, opened

from common.compile.source import build
from common.errors import Crashed, Hung
from common.model.weights import load

pytestmark = [pytest.mark.cuda, pytest.mark.covers]
BARRIER = "Self::template after<S>(c, layer);"
LIMIT = "constexpr unsigned spin_limit = 1u << 25;"


def spoiled(model, old: str, new: str):
    """The baseline with a fault, which gives up waiting soon."""
    source = build([], model)
    text = source.text.replace(LIMIT, "constexpr unsigned spin_limit = 1u << 17;").replace(old, new)
    assert text.count(new) == 1
    return dataclasses.replace(source, text=text)


@in_child(spends=True)
def test_missing_block_is_named(tiny, cpu_cache, seed):
    """Block 1 skips two barriers, one per layer, so the others wait for it at the last barrier but one."""
    source = spoiled(tiny, BARRIER, f"if (S != Stage::o_proj || blockIdx.x != 1) {BARRIER}")
    with opened(source, load("synthetic", tiny, None, cpu_cache, seed)[2].flat, blocks=4) as session:
        session.reset([1], 0)
        with pytest.raises(Hung) as hung:
            session.run()
    assert "3 blocks (0, 2, 3) waited after final_norm, layer 0" in hung.value.report
    assert "1 block (1) reported no wait" in hung.value.report


@in_child(spends=True)
def test_a_trap_is_a_crash(tiny, cpu_cache, seed):
    source = spoiled(tiny, BARRIER, f"if (S == Stage::o_proj && c.position == 1) trap(); {BARRIER}")
    with opened(source, load("synthetic", tiny, None, cpu_cache, seed)[2].flat) as session:
        session.reset([1], 0)
        session.run()
        with pytest.raises(Crashed, match=r"baseline failed on the GPU: .*; run it with device=ptx"):
            session.run()


@in_child()
def test_other_processes_can_run_afterwards(tiny, cpu_cache, seed):
    with opened(build([], tiny), load("synthetic", tiny, None, cpu_cache, seed)[2].flat) as session:
        session.reset([1], 0)
        session.run()
        assert session.state()[session.layout.state["position"].offset] == 1
