"""Decoded kernels, kept on disk: the same results and lines without the decoder, at other addresses of variables."""

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from common.cache.files import intact
from common.devices.ptx import program
from common.devices.ptx.executable import file_of
from common.devices.ptx.library import library
from common.devices.ptx.program import Buffer, Machine, PtxProgram
from common.devices.ptx.report import FAULTED, FINISHED

# table[1] is 7, written `at` the second element; the kernel adds it to a number, and keeps a count in a variable.
TEXT = """
.version 8.0
.target sm_90
.address_size 64
.file 1 "sums.cu"
.const .align 4 .u32 table[3] = {5, 7, 9};
.global .align 4 .u32 calls;
.visible .entry sum(.param .u64 to)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  .loc 1 12 3
  ld.param.u64 %rd1, [to];
  ld.const.u32 %r1, [table+4];
  mov.u64 %rd2, calls;
  ld.global.u32 %r2, [%rd2];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd2], %r2;
  add.u32 %r3, %r1, %r2;
  .loc 1 20 3
  st.global.u32 [%rd1], %r3;
  ret;
}
"""


@pytest.fixture
def machine(tmp_path, cpu_cache):
    """The machine in a folder of this test's own, where no kernel is kept yet."""
    return Machine(Path(shutil.copy(library(cpu_cache), tmp_path)))


def run(made: PtxProgram, words: int = 1) -> tuple[int, int, str]:
    """(status, the sum, the report) of a launch with one thread. words: of the array that it may write."""
    to = np.zeros(1, np.uint32)
    ended = made.kernel("sum").launch(
        (1, 1, 1), (1, 1, 1), struct.pack("<Q", to.ctypes.data), [Buffer("to", to.ctypes.data, 4 * words)]
    )
    return ended.status, int(to[0]), ended.report


def test_a_kept_kernel_runs_without_the_decoder(machine, monkeypatch):
    first = PtxProgram(machine, TEXT)
    assert run(first)[:2] == (FINISHED, 8)
    monkeypatch.setattr(program, "Decoder", None)
    again = PtxProgram(machine, TEXT)  # beside the first, so that its variables lie elsewhere
    assert run(again)[:2] == (FINISHED, 8), "it has variables of its own"
    assert run(again)[:2] == (FINISHED, 9)
    assert run(first)[:2] == (FINISHED, 9)


def test_a_kept_kernel_names_its_lines(machine, monkeypatch):
    PtxProgram(machine, TEXT).kernel("sum")
    monkeypatch.setattr(program, "Decoder", None)
    made = PtxProgram(machine, TEXT)
    status, _, report = run(made, words=0)
    store = next(at for at, row in enumerate(made.kernel("sum").rows()) if row.opcode == "st.global.u32" and at > 4)
    assert status == FAULTED
    assert f"{{pc {store}}}" in report
    assert str(made.kernel("sum").line(store)) == "sums.cu:20"


def test_a_damaged_file_is_decoded_again(machine):
    PtxProgram(machine, TEXT).kernel("sum")
    kept = file_of(machine.path, TEXT, "sum")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert run(PtxProgram(machine, TEXT))[:2] == (FINISHED, 8)
    assert intact(kept)


def test_the_file_depends_on_text_kernel_machine_and_decoder(machine, monkeypatch):
    known = {file_of(machine.path, TEXT, "sum")}
    known |= {file_of(machine.path, f"{TEXT}\n", "sum"), file_of(machine.path, TEXT, "other")}
    known |= {file_of(machine.path.with_name("other.so"), TEXT, "sum")}
    monkeypatch.setattr("common.devices.ptx.executable.sources_sha", lambda *patterns: "another decoder")
    known |= {file_of(machine.path, TEXT, "sum")}
    assert len(known) == 5
