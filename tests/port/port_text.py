"""The text of port.cuh and what adds to it: two halves, the functions that each declares, and PTX of their callers."""

import re
from pathlib import Path

from common.compile import nvrtc
from common.compile.source import KERNEL, flatten
from common.devices.host.compiler import RUNTIME
from common.model.stages import declare

SEEN: set[Path] = set()
PORT = "\n".join(
    line for name in ("port", "fence", "tensor_port", "sums_port") for line in flatten(KERNEL / f"{name}.cuh", SEEN)
)
HALVES = ("port_host.hpp", "tensor_host.hpp")  # of the host device
CUDA = re.sub(r'^#include "\w+_host.hpp"$', "", PORT, flags=re.MULTILINE)
HOST = "\n".join((RUNTIME / name).read_text() for name in HALVES)
FUNCTION = re.compile(
    r"^(?:template <(?P<template>[^>]*)> ?\n?)?"
    r"(?P<before>(?:\[\[noreturn\]\] )?(?:DEVICE|PLACED|inline)) (?P<returns>[\w <>]+?[ *])(?P<name>\w+)"
    r"\((?P<takes>[^)]*(?:\(\))?[^)]*)\) \{",
    re.MULTILINE,
)
MACRO = re.compile(r"^#define (\w+)(\([^)]*\))?", re.MULTILINE)


def text(kernels: str, port: str = PORT, loaders: int = 0) -> str:
    """Source of kernels that follow the text of port.cuh. loaders: warps of a block beside 96 threads that compute."""
    constants = f"constexpr int block_threads = 96;\nconstexpr int loader_warps = {loaders};"
    return f"using size_t = decltype(sizeof(0));\n{constants}\n{declare()}\n{port}\n{kernels}"


def ptx(kernels: str, arch: str = "sm_90", port: str = PORT, loaders: int = 0) -> str:
    """PTX of kernels that follow the text of port.cuh, with the lab's options. Raises NVRTCError."""

    virtual = arch.replace("sm_", "compute_")  # PTX only: nothing is assembled
    return nvrtc._build(text(kernels, port, loaders), "port.cu", nvrtc.options(virtual), nvrtc._nvrtc().getPTX).decode()


def _spaces(half: str) -> str:
    """The text in each namespace port."""
    return "".join(re.findall(r"^namespace port \{$(.*?)^\} // namespace port$", half, re.MULTILINE | re.DOTALL))


def functions(half: str) -> dict[str, str]:
    """Signatures in namespace port, without names of parameters: "load(const void *)" and what stands before it.

    Their defaults are left out, since rows of the table rely on them, and so is the host's last parameter, the source
    line for reports, and what only inlines.
    """
    found: dict[str, str] = {}
    for match in FUNCTION.finditer(_spaces(half)):
        takes = [part.strip() for part in match["takes"].split(",") if part.strip() and "host::" not in part]
        plain = [part.partition(" =")[0] for part in takes]
        types = [re.sub(r"(?<=[ *&])\w+$", "", part).strip() if len(part.split()) > 1 else part for part in plain]
        template = re.sub(r"(Data|L1) \w+", r"\1", match["template"] or "")
        noreturn = "[[noreturn]] " if "noreturn" in match["before"] else ""
        signature = f"{match['name']}({', '.join(types)})"
        assert signature not in found, signature
        found[signature] = f"<{template}> {noreturn}{match['returns'].strip()}"
    return found


def bodies(half: str) -> dict[str, str]:
    """The text of each function in namespace port, with what stands before the next one."""
    text = _spaces(half)
    ends = [match.end() for match in FUNCTION.finditer(text)]
    return {name: text[start:end] for name, start, end in zip(functions(half), ends, [*ends[1:], -1], strict=True)}


def macros(half: str) -> dict[str, str]:
    """Macros and their parameters."""
    return dict(MACRO.findall(half))
