"""AddressSanitizer and UndefinedBehaviorSanitizer on the host device: an error is told with line, thread and stage."""

from contextlib import closing

import pytest
import torch
from bare_kernel import bare_kernel
from racy import TINY

from common.devices.host.sanitized import SanitizedDevice
from common.errors import Crashed, Hung

pytestmark = pytest.mark.host
ONE = (
    "if (port::block() != 1 || port::thread() != 40) return; "
    "port::mark(Stage::down, 1); volatile int n = c.token; (void)n;"
)
LINES = {
    "address": [
        ("volatile float own[4]; own[n + 2] = 1; out[0] = own[0];", "stack-buffer-overflow, a write of 4 bytes"),
        ("volatile float own[4]; own[0] = 1; out[0] = own[n - 4];", "stack-buffer-(under|over)flow, a read of 4 bytes"),
        ("out[0] = c.state[-1];", "use-after-poison, a read of 4 bytes"),
        ("out[0] = reinterpret_cast<volatile char *>(&s)[-16];", "use-after-poison, a read of 1 bytes"),
        ("const_cast<bf16 *>(c.weights)[n] = 1;", "a write of the weights buffer at byte 12"),
    ],
    "undefined": [
        ("out[0] = s.a[n + 2];", r"index 4 out of bounds for type 'float \[4\]'"),
        ("out[0] = 1 << (n + 30);", "shift exponent 33 is too large for 32-bit type 'int'"),
        ("out[0] = n + 2147483644;", "signed integer overflow: 4 "),
        ("out[0] = int(2e9f * n) / (n - 5);", "division by zero"),
        ("const_cast<bf16 *>(c.weights)[n] = 1;", "a write of the weights buffer at byte 12"),
    ],
}


def run(device: SanitizedDevice, program, token: int, weights: torch.Tensor) -> None:
    with closing(device.session(program, weights, blocks=3)) as session:
        session.reset([token], 0)
        session.run()


@pytest.mark.parametrize("sanitizer", LINES)
def test_each_error_is_told_with_line_thread_and_stage(host_cache, synthetic, sanitizer, seed):
    cases = [f"case {number}: {{ {line} break; }}" for number, (line, _) in enumerate(LINES[sanitizer], 2)]
    body = "\n".join([f"{ONE} switch (c.token) {{", *cases, "case 99: port::block_barrier(); }"])
    device = SanitizedDevice(host_cache, seed=0, sanitizer=sanitizer)
    program, weights = device.compile(bare_kernel(TINY, body, "float a[4];")), synthetic(TINY, seed)
    for token, (_, message) in enumerate(LINES[sanitizer], 2):
        where = f"test:{token} by thread 40 of block 1, stage down, layer 1"
        with pytest.raises(Crashed, match=f"{message}.* at {where}"):
            run(device, program, token, weights)
    run(device, program, 1, weights)
    with pytest.raises(Hung) as hung:
        run(device, program, 99, weights)
    assert "1 thread (first 40) waiting at a block barrier at test:" in hung.value.report
