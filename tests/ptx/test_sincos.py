"""Sine and cosine of the port on the PTX device, to the rounding of doubles: a tap shows only fp32's."""

import ctypes
import math
import random
import struct

import pytest
from port_text import PORT, text
from test_opcodes import machine  # noqa: F401

from common.compile.nvrtc import compile_ptx
from common.devices.ptx.program import Buffer, PtxProgram
from common.devices.ptx.report import FINISHED
from tests.strength.mutants.mutation import edited, read_mutants

pytestmark = pytest.mark.cpu
BODY = """double *const two = reinterpret_cast<double *>(wide) + 2 * port::thread();
port::sincos_turns(*two, two, two + 1);"""
FAULTS = [mutant for mutant in read_mutants() if "test_sincos" in mutant.reason]


@pytest.fixture
def error(machine, seed):  # noqa: F811
    """error(port): the largest error of 32 angles in the range that rope.cuh asks for."""

    def error_(port: str) -> float:
        choose = random.Random(seed)
        turns = [-0.5, -0.25, 0.0, 0.125, 0.5, *(choose.uniform(-0.5, 0.5) for _ in range(27))]
        words = (ctypes.c_double * 64)(*(each for turn in turns for each in (turn, 0.0)))
        buffer = Buffer("wide", ctypes.addressof(words), 512)
        parameters = struct.pack("<7Q", 0, 0, buffer.start, 0, 0, 0, 0)
        kernel = PtxProgram(machine, compile_ptx(text([BODY], port), "sm_90")).kernel("kernel_0")
        assert kernel.launch((1, 1, 1), (32, 1, 1), parameters, [buffer]).status == FINISHED
        wanted = [of(2 * math.pi * turn) for turn in turns for of in (math.sin, math.cos)]
        return max(abs(got - want) for got, want in zip(words, wanted, strict=True))

    return error_


def test_they_are_right_to_rounding(error):
    assert error(PORT) < 2e-15


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_below_the_tolerance_of_a_tap_is_seen(fault, error):
    assert error(edited(PORT, fault)) > 2e-15
