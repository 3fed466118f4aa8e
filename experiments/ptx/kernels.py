"""The kernel of a file: its PTX, compiled if the file is CUDA text, and what NVRTC's errors mean for such a file."""

import os
import re
from pathlib import Path

from common.compile.nvrtc import ARCHS, compile_ptx, user_options
from common.devices.ptx.text import Kernel, Module, demangled
from common.errors import CompileError, LabError, known
from experiments.ptx.launch_file import Settings

STANDARDS = ("11", "14", "17", "20")
ARCH = "sm_90"  # for which a .cu is compiled unless a launch says another
HOST_CODE = re.compile(r"<<<|\bmain\s*\(|\bcuda(?:Malloc|Memcpy|DeviceSynchronize)\b|\bstd::(?:vector|cout|string)\b")


def ptx_of(one: Settings) -> str:
    """The PTX of a .cu or .ptx file. Raises LabError, and CompileError, which says what to do about a text for nvcc."""
    file = one.file
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{file} cannot be read: {error}", "give the path of a .cu or .ptx file") from None
    if file.suffix == ".ptx" and not (one.include or one.define or one.std):
        return text
    if file.suffix != ".cu":
        raise LabError(f"{file.name} is not a .cu file", "give CUDA text, or a .ptx without include, define and std")
    arch, std = known("arch", one.arch or ARCH, ARCHS), known("std", str(one.std or 17), STANDARDS)
    options = user_options((file.parent, *(one.folder / each for each in one.include)), one.define, int(std))
    try:
        # An arch of sm_90 lets ptxas see the text, too: a user's asm is checked by what a GPU's driver would ask.
        return compile_ptx(text, arch, os.path.relpath(file), one.cache / "kernels", options)
    except CompileError as error:
        raise CompileError(error.cause, _remedy(error, text), error.report) from None


def _remedy(error: CompileError, text: str) -> str:
    if "cannot open source file" in error.cause:
        wheels = "nvidia-cuda-runtime and nvidia-cuda-cccl, those of mma.h with nvidia-cuda-crt"
        return f"give its folder: include: [FOLDER]; CUDA's own come with the wheels {wheels}"
    if HOST_CODE.search(text) and "__CUDACC_RTC__" not in text:
        return (
            "NVRTC compiles code of the GPU only: put main and all other code of the host between "
            "#ifndef __CUDACC_RTC__ and #endif"
        )
    return error.remedy


def kernel_of(module: Module, name: str | None, file: Path) -> Kernel:
    """A kernel by its name, mangled or not; the only one without a name. Raises LabError."""
    kernels = module.kernels
    found = [each for each in kernels if name is None or name in (each, demangled(each))]
    if len(found) == 1:
        return kernels[found[0]]
    cause = f"{file.name} has {len(found) or 'no'} kernels" + (f" named {name}" if name else "")
    remedy = f"give kernel=NAME: {', '.join(found or kernels)}"
    if not kernels:
        remedy = "write a __global__ function; instantiate a template: template __global__ void k<float>(float *);"
    raise LabError(cause, remedy)
