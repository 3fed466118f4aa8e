"""Process that compiles texts by NVRTC for another one: a text that ends NVRTC ends this process only.

Started as a file by nvrtc_process.py, without the lab and without site-packages, so that it starts in some 50 ms.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

OUTPUTS = {"ptx": "PTX", "cubin": "CUBIN"}


class Request(NamedTuple):
    """A text to compile. outputs: of OUTPUTS; headers: texts by the names in #include; folder: the working folder."""

    text: str
    name: str
    options: tuple[str, ...]
    outputs: tuple[str, ...]
    headers: dict[str, str]
    folder: str


class Reply(NamedTuple):
    """The outputs asked for, None if the text does not compile, and NVRTC's log."""

    outputs: tuple[bytes, ...] | None
    log: str


def compiled(nvrtc: ctypes.CDLL, request: Request) -> Reply:
    """Compile one text. Raises RuntimeError with NVRTC's words where it fails otherwise."""
    names, texts, words = map(_strings, (request.headers, request.headers.values(), request.options))
    text, name, program = request.text.encode(), request.name.encode(), ctypes.c_void_p()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, len(names), texts, names))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(words), words)
        log = _read(nvrtc, program, "ProgramLog").decode(errors="replace").strip("\0\n ")
        if status:
            return Reply(None, log or nvrtc.nvrtcGetErrorString(status).decode())
        return Reply(tuple(_read(nvrtc, program, OUTPUTS[each]) for each in request.outputs), log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: Iterable[str]) -> "ctypes.Array[ctypes.c_char_p]":
    encoded = [each.encode() for each in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, nvrtc[f"nvrtcGet{what}"](program, buffer))
    return buffer.raw


def _check(nvrtc: ctypes.CDLL, status: int) -> None:
    if status:
        raise RuntimeError(nvrtc.nvrtcGetErrorString(status).decode())


def main(descriptor: str, *libraries: str) -> None:
    """Serve requests until the other end is closed. libraries: paths, NVRTC's last."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the lab, which then ends this process
    connection = Connection(int(descriptor))
    nvrtc = [ctypes.CDLL(each) for each in libraries][-1]
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    with suppress(EOFError, OSError):
        while True:
            request = Request(*connection.recv())
            with suppress(OSError):
                os.chdir(request.folder)  # NVRTC puts it before relative names of files
            connection.send(tuple(compiled(nvrtc, request)))


if __name__ == "__main__":
    main(*sys.argv[1:])
