"""The PTX device as an aarch64 machine has it, executed by qemu; skipped where that is not installed."""

from dataclasses import replace

import pytest
import torch

from common.compile.source import build
from common.errors import Hung
from common.model.layout import Layout
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from tests.strength.soak.aarch64 import compare, missing
from tests.strength.soak.aarch64_ptx import EmulatedPtxDevice

pytestmark = [pytest.mark.cpu, pytest.mark.skipif(bool(missing()), reason=missing())]

BARRIER = "Self::template after<S>(c, layer);"


@pytest.mark.parametrize("name", ["cp_async", "streaming"])  # asynchronous copies; tensor cores and mbarriers
def test_a_stack_leaves_the_bits_of_this_machine(name, cpu_cache, seed):
    catalog = read_catalog()
    (stack,) = choose_stacks(catalog, name, None, {}, 256)
    assert compare(catalog, stack, cpu_cache, seed, EmulatedPtxDevice) == ""


def test_a_report_of_the_machine_comes_back(cpu_cache, tiny):
    device = EmulatedPtxDevice(cpu_cache)
    source = build([], tiny)
    text = source.text.replace(BARRIER, f"if (blockIdx.x != 1) {BARRIER}")
    assert text != source.text
    weights = torch.zeros(Layout(tiny).weights_size, dtype=torch.bfloat16)
    session = device.session(device.compile(replace(source, text=text)), weights, 3)
    session.reset([1], 0)
    with pytest.raises(Hung, match="block 0"):
        session.run()
