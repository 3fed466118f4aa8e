"""NVRTC in processes of its own: a text that ends it, an interrupt, threads, and forked processes."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import alive

from common.compile import nvrtc_process
from common.compile.nvrtc import compile_ptx
from common.errors import CompileError

ENDING = """extern "C" __global__ void k() {
  asm volatile("mbarrier.init.shared.b64 [%0], 0;" :: "r"(0));
}"""


def text(number: int) -> str:
    return f'extern "C" __global__ void k(int *x) {{ *x = {number}; }}'


def compiled(number: int) -> bool:
    return f"{number};" in compile_ptx(text(number), "sm_90")


def test_a_text_that_ends_nvrtc_is_a_compile_error_and_the_next_one_is_compiled():
    for _ in range(2):
        with pytest.raises(
            CompileError, match=r"^mine\.cu does not compile for sm_90: NVRTC ends by SIGSEGV; correct "
        ):
            compile_ptx(ENDING, "sm_90", "mine.cu")
    assert compiled(4321)


def test_threads_have_processes_of_their_own():
    def one(number: int) -> bool:
        if number % 4:
            return compiled(1000 + number)
        with pytest.raises(CompileError):
            compile_ptx(ENDING, "sm_90")
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(12)))


def test_a_reply_that_an_interrupt_left_behind_is_not_the_next_ones(monkeypatch):
    assert compiled(5)

    class Interrupted:
        def __init__(self, connection):
            self.send, self.close = connection.send, connection.close

        def recv(self):
            raise KeyboardInterrupt

    worker = nvrtc_process._IDLE[-1]
    worker._connection = Interrupted(worker._connection)
    with pytest.raises(KeyboardInterrupt):
        compiled(6)
    assert worker.process.poll() is not None
    assert compiled(7)


def test_a_forked_process_starts_its_own():
    assert compiled(8)
    pids = {worker.process.pid for worker in nvrtc_process._IDLE}
    if not (child := os.fork()):
        try:
            right = compiled(9) and not pids & {worker.process.pid for worker in nvrtc_process._IDLE}
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compiled(10)
    assert {worker.process.pid for worker in nvrtc_process._IDLE} == pids


def test_a_process_ends_with_the_one_that_asked():
    code = "from test_nvrtc_process import compiled, nvrtc_process as p; compiled(1); print(p._IDLE[0].process.pid)"
    command, path = [sys.executable, "-c", code], os.pathsep.join(sys.path)
    asked = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    while alive(int(asked.stdout)):
        time.sleep(0.05)
