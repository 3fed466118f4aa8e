"""The text of port.cuh: its two halves, the functions that each declares, and PTX of kernels that call them."""

import re

from common.compile import nvrtc
from common.compile.source import KERNEL, flatten
from common.model.stages import declare

PORT = "\n".join(flatten(KERNEL / "port.cuh", set()))
CUDA = PORT[: PORT.index('#include "port_host.hpp"')]
HOST = (KERNEL.parent / "devices" / "runtime" / "port_host.hpp").read_text()
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


def functions(half: str) -> dict[str, str]:
    """Signatures in namespace port, without names of parameters: "load(const void *)" and what stands before it.

    The host's last parameter, the source line for reports, is left out, and so is what only inlines.
    """
    start = half.index("namespace port {")
    found = {}
    for match in FUNCTION.finditer(half[start : half.index("} // namespace port", start)]):
        takes = [part.strip() for part in match["takes"].split(",") if part.strip() and "host::" not in part]
        types = [re.sub(r"(?<=[ *&])\w+$", "", part).strip() if len(part.split()) > 1 else part for part in takes]
        template = re.sub(r"(Data|L1) \w+", r"\1", match["template"] or "")
        noreturn = "[[noreturn]] " if "noreturn" in match["before"] else ""
        signature = f"{match['name']}({', '.join(types)})"
        assert signature not in found, signature
        found[signature] = f"<{template}> {noreturn}{match['returns'].strip()}"
    return found


def bodies(half: str) -> dict[str, str]:
    """The text of each function in namespace port, with what stands before the next one."""
    half = half[half.index("namespace port {") :]
    ends = [match.end() for match in FUNCTION.finditer(half[: half.index("} // namespace port")])]
    return {name: half[start:end] for name, start, end in zip(functions(half), ends, [*ends[1:], -1], strict=True)}


def macros(half: str) -> dict[str, str]:
    """Macros and their parameters."""
    return dict(MACRO.findall(half))
