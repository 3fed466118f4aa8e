"""Memory that is watched: an access outside a buffer, or a write into the weights, is reported at its line."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from common import ROOT
from common.compile.source import build
from common.config.resolve import model_named
from common.devices.guarded import GuardedBuffer
from common.devices.host.device import HostDevice
from common.errors import Crashed
from common.model.layout import Layout

pytestmark = pytest.mark.host
ONE = "if (port::block() != 1 || port::thread() != 40) return; port::mark(Stage::o_proj, 1);"
# Line of FAULTS -> what the report says. The kernel executes the line that its token names.
FAULTS = {
    "c.scratch[END] = 1;": r"a write outside the scratch buffer, 0 bytes after its end",
    "*out = c.scratch[END + 4];": r"a read outside the scratch buffer, 16 bytes after its end",
    "c.scratch[-2000] = 1;": r"a write outside the scratch buffer, 8000 bytes before its start",
    "*out = c.cache[-5000];": r"a read outside the cache buffer, 10000 bytes before its start",
    "const_cast<bf16 *>(c.weights)[7] = 1;": r"a write of the weights buffer at byte 14",
    "__atomic_fetch_add(const_cast<bf16 *>(c.weights) + 8, 0, __ATOMIC_RELAXED);": (
        r"a write of the weights buffer at byte 16"
    ),
    "c.state[-2000] = 1;": r"a write outside the state buffer, 8000 bytes before its start",
    "*out = (&s.unused)[1];": r"a read outside the shared buffer, 0 bytes after its end",
    "(&s.unused)[2] = c.token;": r"a write outside the shared buffer, 4 bytes after its end",
    "*out = *reinterpret_cast<volatile float *>(size_t(c.token) << 40);": r"a read of .*, far from every buffer",
    "out[1] = port::load_weights<16>(reinterpret_cast<const bf16 *>(out)).word[0];": (
        "load_weights of the scratch buffer at byte 0"
    ),
    "*out = port::load_weight(c.weights - 1);": "load_weight outside the weights buffer, 2 bytes before its start",
    "port::touch_weights(c.cache);": "touch_weights of the cache buffer at byte 0",
    "port::prefetch_l2(out + END);": "prefetch_l2 outside the scratch buffer, 0 bytes after its end",
    "port::prefetch_bulk(c.weights - 8, 32);": "prefetch_bulk outside the weights buffer, 16 bytes before its start",
    "port::prefetch_bulk(c.cache, 16);": "prefetch_bulk of the cache buffer at byte 0",
    "port::store_kv(c.cache - 1, 0);": "store_kv outside the cache buffer, 2 bytes before its start",
    "out[1] = port::load<Data::kv, 8>(out).word[0];": "a load of the scratch buffer at byte 0",
    "out[1] = load_floats<4>(out - 4).value[0];": "a load outside the scratch buffer, 16 bytes before its start",
    "*out = port::load_activation(reinterpret_cast<float *>(c.state));": (
        "load_activation of the state buffer at byte 0"
    ),
    "port::store_activation(reinterpret_cast<float *>(c.cache), 1);": "store_activation of the cache buffer at byte 0",
    "port::store_packet<4>(const_cast<bf16 *>(c.weights), {});": "store_packet of the weights buffer at byte 0",
    "port::copy_async<4>(out, c.weights);": "copy_async to an address of the scratch buffer at byte 0",
    "port::copy_async<4>(&s.unused, c.state);": "copy_async of the state buffer at byte 0",
    "*out = 7 / (c.token - c.token * port::blocks() / 3);": r"a division by zero",
}


def body(lines: list[str]) -> str:
    """A kernel in which one thread executes the line that the token names, counted from 2; END: the end of scratch."""
    end = f"constexpr int END = {Layout(model_named('tiny')).scratch_size}; (void)END;"
    cases = (f"case {number}: {line} break;" for number, line in enumerate(lines, 2))
    return "\n".join([f"{end} {ONE} switch (c.token) {{", *cases, "}"])


@pytest.mark.parametrize("line", FAULTS)
def test_fault_is_reported_at_its_line(launch, line):
    at = 2 + list(FAULTS).index(line)
    place = r"common/kernel/reduce.cuh:\d+" if "load_floats" in line else f"test:{at}"
    where = rf"at {place} by thread 40 of block 1, stage o_proj, layer 1"
    with pytest.raises(Crashed, match=rf"faulted: {FAULTS[line]}.* {where}"):
        launch(body(list(FAULTS)), token=at)


@pytest.mark.parametrize("seed", [0, 1])
def test_writes_beside_a_buffer_are_reported_on_both_sides(launch, seed):
    """One side of a buffer ends at inaccessible pages, the other has a canary; the seed says which."""
    how = "faulted: a write outside" if seed else "wrote outside"
    with pytest.raises(Crashed, match=f"the kernel {how} the state buffer"):
        launch(body(["c.state[-1] = 1;"]), token=2, seed=seed)


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


def test_the_signals_belong_to_python_again_after_a_launch(host_cache):
    """A fault of Python's own, after a launch that faulted, goes to the handler that Python had installed."""
    code = f"""if True:
        import ctypes, faulthandler, pathlib, sys
        sys.path.insert(0, "tests")
        faulthandler.enable()
        from bare_kernel import bare_kernel
        import torch
        from common.devices.host.device import HostDevice
        from common.errors import Crashed
        from common.model.layout import Layout
        from common.model.shapes import Model
        model = Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)
        device, layout = HostDevice(pathlib.Path({str(host_cache)!r})), Layout(model)
        program = device.compile(bare_kernel(model, {body(list(FAULTS))!r}))
        session = device.session(program, torch.zeros(layout.weights_size, dtype=torch.bfloat16), 3)
        session.reset([4], 0)
        try:
            session.run()
        except Crashed as error:
            print(error, flush=True)
        session.close()
        ctypes.string_at(0)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "a write outside the scratch buffer, 8000 bytes before its start" in done.stdout, done.stderr
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert done.returncode == -11


def test_a_kernel_that_is_closed_leaves_no_mappings(host_cache, synthetic, tiny, seed):
    """A process may have 65,530 of them, and a validation runs hundreds of kernels, of hundreds of blocks."""

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    device, weights, blocks, found = HostDevice(host_cache), synthetic(tiny, seed), 50, []
    for threads in (32, 64, 96):
        program = device.compile(build([], tiny, threads))
        with closing(device.session(program, weights, blocks)) as session:
            session.reset([1], 0)
            session.run()
        found.append(mappings())
    assert found[-1] < found[0] + blocks, found
