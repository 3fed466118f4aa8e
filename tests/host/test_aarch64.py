"""The devices of a CPU as an aarch64 machine has them, executed by qemu; skipped where that is not installed."""

from dataclasses import replace

import pytest
import torch
from bare_kernel import bare_kernel

from common.compile.source import build
from common.devices.host import compiler
from common.devices.ptx.device import PtxDevice
from common.errors import Crashed, Hung
from common.model.layout import Layout
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from tests.strength.soak.aarch64 import EmulatedDevice, compare, missing
from tests.strength.soak.aarch64_ptx import EmulatedPtxDevice

pytestmark = [pytest.mark.host, pytest.mark.skipif(bool(missing()), reason=missing())]

BARRIER = "Self::template after<S>(c, layer);"


def compared(name, folder, seed, *devices) -> str:
    catalog = read_catalog()
    (stack,) = choose_stacks(catalog, name, None, {}, 256)
    return compare(catalog, stack, folder, seed, *devices)


@pytest.mark.parametrize("name", ["baseline", "cp_async", "streaming"])  # barriers, asynchronous copies, bulk copies
def test_a_stack_has_the_bits_and_the_counts_of_this_machine(name, host_cache, seed):
    assert compared(name, host_cache, seed) == ""


@pytest.mark.parametrize("name", ["cp_async", "streaming"])  # asynchronous copies; tensor cores and mbarriers
def test_ptx_leaves_the_bits_of_this_machine(name, host_cache, seed):
    assert compared(name, host_cache, seed, PtxDevice, EmulatedPtxDevice) == ""


def test_a_report_of_the_ptx_machine_comes_back(host_cache, tiny):
    device = EmulatedPtxDevice(host_cache)
    source = build([], tiny)
    text = source.text.replace(BARRIER, f"if (port::block() != 1) {BARRIER}")
    assert text != source.text
    weights = torch.zeros(Layout(tiny).weights_size, dtype=torch.bfloat16)
    session = device.session(device.compile(replace(source, text=text)), weights, 3)
    session.reset([1], 0)
    with pytest.raises(Hung, match="block 0"):
        session.run()


def test_a_switch_that_loses_a_register_is_found(host_cache, tmp_path, monkeypatch):
    for file in compiler.RUNTIME.iterdir():
        text = file.read_text().replace("  ldp x19, x20, [sp]\n", "")
        (tmp_path / file.name).write_text(text)
    monkeypatch.setattr(compiler, "RUNTIME", tmp_path)
    assert compared("baseline", host_cache, 5)


def run(body, tiny, folder) -> None:
    device, layout = EmulatedDevice(folder), Layout(tiny)
    weights = torch.zeros(layout.weights_size, dtype=torch.bfloat16)
    session = device.session(device.compile(bare_kernel(tiny, body)), weights, 3)
    session.reset([1], 0)
    session.run()


def test_a_fault_within_the_c_library_has_the_line_that_called_it(host_cache, tiny):
    """memcpy is a leaf: its return address is in a register and on no stack."""
    with pytest.raises(
        Crashed, match=r"the null address, or of one that cannot exist at test:2 by thread \d+ of block"
    ):
        run("float *volatile nowhere = nullptr;\nmemcpy(out, nowhere, 400);", tiny, host_cache)


def test_a_deadlock_is_reported(host_cache, tiny):
    with pytest.raises(Hung, match=r"block 0: 63 threads \(first 0\) waiting at a block barrier at test:1"):
        run("if (port::block() != 0 || port::thread() != 7) port::block_barrier();", tiny, host_cache)
