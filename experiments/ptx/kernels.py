"""The kernel of a file: its PTX, compiled if the file is CUDA text, and what NVRTC's errors mean for such a file."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.compile.nvrtc import More, compile_cubin, compile_ptx, including
from common.devices.ptx.program import PtxKernel, PtxProgram
from common.devices.ptx.text import Kernel, Module, demangled
from common.errors import CompileError, LabError, unknown
from experiments.ptx.arguments import text_in

STANDARDS = (11, 14, 17, 20)
HOST_CODE = re.compile(r"<<<|\bmain\s*\(|\bcuda(?:Malloc|Memcpy|DeviceSynchronize)\b|\bstd::(?:vector|cout|string)\b")
_CALL = re.compile(r"(?:@!?\S+\s+)?call[.\w]*\s+(?:\([^)]*\)\s*,\s*)?([\w$]+)")
EXECUTED = ("vprintf", "__assertfail")  # calls that the executor knows
SLOW_PATHS = {"__internal_trig_reduction_slowpathd": "sin, cos or tan of a double"}


@dataclass(frozen=True)
class Text:
    """The text of a file, and how a .cu is compiled. name: of the file in reports; more: None for PTX."""

    name: str
    text: str
    arch: str
    cache: Path
    more: More | None

    def ptx(self) -> str:
        """The PTX. Raises CompileError, which says what to do about a text that nvcc takes."""
        if self.more is None:
            return self.text
        try:
            return compile_ptx(self.text, self.arch, self.name, self.cache, self.more)
        except CompileError as error:
            raise CompileError(error.cause, _remedy(error, self.text), error.report) from None

    def image(self) -> bytes:
        """The image that a driver loads. Raises CompileError."""
        if self.more is None:
            return self.text.encode()
        return compile_cubin(self.text, self.arch, self.name, self.cache, self.more)


def text_of(
    file: Path, include: tuple[Path, ...], define: Mapping[str, str | None], std: int | None, arch: str, cache: Path
) -> Text:
    """Text and compiler options of a .cu or .ptx file. Raises LabError, also for an option that no .ptx takes."""
    if file.suffix not in (".cu", ".ptx"):
        raise LabError(f"{file.name} is neither a .cu nor a .ptx file", "give CUDA text or PTX under such a name")
    text = text_in(file, "give the path of a .cu or .ptx file")
    name = os.path.relpath(file)
    if file.suffix == ".ptx":
        for key, value in {"include": include, "define": define, "std": std}.items():
            if value:
                raise LabError(f"{key} has no effect on {file.name}, which is compiled", "give a .cu, or leave it out")
        return Text(name, text, arch, cache, None)
    for folder in include:
        if not folder.is_dir():
            raise LabError(f"include: {folder} is no folder", "give folders, relative to the yaml's")
    if std not in (None, *STANDARDS):
        raise unknown("std", std, map(str, STANDARDS))
    return Text(name, text, arch, cache, including((file.parent, *include), define, std or 17))


def _remedy(error: CompileError, text: str) -> str:
    if "cannot open source file" in error.cause:
        wheels = "nvidia-cuda-runtime and nvidia-cuda-cccl"
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
    raise LabError(
        cause, f"give kernel=NAME: {', '.join(found or kernels)}" if kernels else "give a file with a kernel"
    )


def decoded(program: PtxProgram, kernel: Kernel) -> PtxKernel:
    """The kernel for the executor. Raises CompileError; a call is named as such, with its function."""
    try:
        return program.kernel(kernel.name)
    except CompileError:
        for one in kernel.body:
            called = _CALL.match(one.text) if one.kind == "instruction" else None
            if called and called[1] not in EXECUTED:
                function = SLOW_PATHS.get(called[1], demangled(called[1]))
                raise CompileError(
                    f"{one.line}: {function} is a call of the function {called[1]}, which NVRTC has not inlined, and "
                    "calls are not executed",
                    "make it __forceinline__; in place of a function of double give one of float, or your own",
                ) from None
        raise
