"""Sine and cosine of rope.cuh on the PTX device, to the rounding of doubles: a tap shows only fp32's."""

import ctypes
import math
import random
import re
import struct

import pytest
from asm_text import text
from test_opcodes import machine  # noqa: F401

from common.compile.nvrtc import compile_ptx
from common.compile.source import KERNEL, flatten
from common.devices.ptx.program import Buffer, PtxProgram
from common.devices.ptx.report import FINISHED
from tests.strength.mutants.mutation import edited, read_mutants

pytestmark = pytest.mark.cpu
BODY = """double *const two = reinterpret_cast<double *>(wide) + 2 * threadIdx.x;
double turns = *two, sine, cosine; {call}; two[0] = sine; two[1] = cosine;"""
ROPE = "\n".join(flatten(KERNEL / "rope.cuh", set()))
CALL = re.compile(r"sincospi\(.*\)(?=;)")
FAULTS = [mutant for mutant in read_mutants() if "test_sincos" in mutant.reason]


@pytest.fixture
def error(machine, seed):  # noqa: F811
    """error(rope): the largest error of 32 angles in the range that the text `rope` asks for, by its call."""

    def error_(rope: str) -> float:
        choose = random.Random(seed)
        turns = [-0.5, -0.25, 0.0, 0.125, 0.5, *(choose.uniform(-0.5, 0.5) for _ in range(27))]
        words = (ctypes.c_double * 64)(*(each for turn in turns for each in (turn, 0.0)))
        buffer = Buffer("wide", ctypes.addressof(words), 512)
        parameters = struct.pack("<7Q", 0, 0, buffer.start, 0, 0, 0, 0)
        [call] = CALL.findall(rope)
        kernel = PtxProgram(machine, compile_ptx(text([BODY.format(call=call)]), "sm_90")).kernel("kernel_0")
        assert kernel.launch((1, 1, 1), (32, 1, 1), parameters, [buffer]).status == FINISHED
        wanted = [of(2 * math.pi * turn) for turn in turns for of in (math.sin, math.cos)]
        return max(abs(got - want) for got, want in zip(words, wanted, strict=True))

    return error_


def test_they_are_right_to_rounding(error):
    assert error(ROPE) < 2e-15


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_below_the_tolerance_of_a_tap_is_seen(fault, error):
    assert error(edited(ROPE, fault)) > 2e-15
