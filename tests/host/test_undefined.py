"""Undefined arithmetic of C++ on the host device: g++ can make a fault of it, with no library and no other process."""

from contextlib import closing

import pytest
from bare_kernel import bare_kernel
from composed import NAMED, VARIANTS
from sampled import sampled

from common.devices.host.device import HostDevice
from common.errors import Crashed
from common.validate.check import validate
from common.validate.scenarios import scenarios

pytestmark = pytest.mark.host
FLAGS = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
LINES = (
    "out[0] = s.a[n + 2];",  # beyond that array, within the struct
    "volatile float own[4]; own[n + 2] = 1; out[0] = own[0];",
    "out[0] = 1 << (n + 30);",
    "out[0] = n + 2147483644;",
    "out[0] = int(2e9f * n) / (n - 6);",
)


def test_an_undefined_result_is_a_fault_with_its_line(host_cache, synthetic, tiny, seed):
    cases = [f"case {number}: {{ {line} break; }}" for number, line in enumerate(LINES, 2)]
    who = "if (port::block() != 1 || port::thread() != 40) return; volatile int n = c.token; (void)n; switch (n) {"
    device = HostDevice(host_cache, seed, flags=FLAGS)
    program = device.compile(bare_kernel(tiny, "\n".join([who, *cases, "}"]), "float a[4];"))
    for token in range(2, len(LINES) + 2):
        with closing(device.session(program, synthetic(tiny, seed), 3)) as session:
            session.reset([token], 0)
            with pytest.raises(Crashed, match=f"at test:{token} by thread 40 of block 1"):
                session.run()


@pytest.mark.parametrize("stack", sampled([*VARIANTS, *NAMED], 2), ids=str)
def test_a_stack_has_no_undefined_arithmetic(stack, host_cache, synthetic, tiny, seed):
    device, weights = HostDevice(host_cache, seed, flags=FLAGS), synthetic(tiny, seed)
    with closing(device.session(device.compile(stack.source(tiny)), weights)) as session:
        verdict = validate(
            session, weights, tiny, scenarios(tiny, seed, weights, quick=True, tokens=session.layout.tokens), seed
        )
    assert verdict.passed, verdict
