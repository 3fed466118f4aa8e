"""Grid barrier that times out on a GPU: the kernel ends, reports the waiting blocks, and later processes can run."""

from multiprocessing import get_context

import pytest

from common.compile.source import build
from common.errors import Hung
from common.model.layout import Layout

pytestmark = pytest.mark.cuda
BARRIER = "Self::template after<S>(c, layer);"
LIMIT = "constexpr unsigned spin_limit = 1u << 25;"


def hang(answer, model, weights) -> None:
    """In its own process: after the trap no launch in it can succeed."""
    import dataclasses

    from common.devices.cuda import CudaDevice

    source = build([], model)
    text = source.text.replace(LIMIT, "constexpr unsigned spin_limit = 1u << 20;")
    text = text.replace(BARRIER, f"if (S != Stage::o_proj || port::block() != 1) {BARRIER}")
    assert text.count("port::block() != 1)") == 1
    device = CudaDevice()
    session = device.session(device.compile(dataclasses.replace(source, text=text)), Layout(model), weights, blocks=4)
    session.reset([1], 0)
    try:
        session.run()
    except Hung as error:
        answer.send(error.report)
    answer.send("")


def test_missing_block_is_named(tiny, host_cache, open_session, seed):
    """Block 1 skips two barriers, one per layer, so the others wait for it at the last barrier but one."""
    from common.model.weights import load

    weights = load("synthetic", tiny, None, host_cache, seed)[2].flat
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hang, args=(theirs, tiny, weights))
    process.start()
    assert ours.poll(120)
    report = ours.recv()
    process.join()
    assert "3 blocks (0, 2, 3) waited after final_norm, layer 0" in report
    assert "1 block (1) waited at no grid barrier" in report
    session = open_session(build([], tiny), weights)
    session.reset([1], 0)
    session.run()
