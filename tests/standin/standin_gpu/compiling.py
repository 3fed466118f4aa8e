"""Compilation of a module's text by the real NVRTC for sm_90, and what its cubin and its C signatures demand."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from standin_gpu.device import ARCH

from common.cache.files import cached
from common.compile import nvrtc, sass
from common.compile.nvrtc_worker import Request
from common.errors import CompileError

ADDED = ("-ftz=true", f"-arch={ARCH}", "--device-as-default-execution-space")  # by CuPy, to any options
FORMAT = "kernels, variables and PTX"  # parts of a cached compilation
PARAMETERS = "CONSTANT[0]", 0x210  # bytes of the first constant bank of sm_90 before the arguments of a kernel
USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+).* CONSTANT\[0\]:(\d+)")
SIGNATURE = r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?\\?\s*{name}\s*\(([^)]*)\)"
SIZES = {"int": 4, "unsigned": 4, "float": 4, "double": 8, "size_t": 8, "unsigned long long": 8, "long long": 8}


def cache_folder() -> Path:
    """The folder of compiled kernels: the tests' own, so that both devices compile a text once."""
    return Path(os.environ.get("LAB_CACHE") or Path(tempfile.gettempdir()) / "standin-gpu")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel. type: of C without const, `float` or `float *`; written: a pointer to no const."""

    name: str
    type: str
    written: bool

    @property
    def size(self) -> int:
        return 8 if self.type.endswith("*") else SIZES[self.type]


@dataclass(frozen=True)
class Needs:
    """Needs of one kernel on a multiprocessor, and its parameters."""

    registers: int
    shared: int
    local: int
    parameters: tuple[Parameter, ...]


class CompilationFailed(Exception):
    """NVRTC refused the text; the message is its log."""


@dataclass(frozen=True)
class Compiled:
    """Module that the driver loads of a text: kernels, and initial values of variables, by name; and its PTX."""

    kernels: dict[str, Needs]
    variables: dict[str, bytes]
    ptx: str


def compile_text(text: str, options: Sequence[str]) -> Compiled:
    """Raises CompilationFailed."""
    chosen = (*options, *ADDED)
    if not any(option.startswith(("-std", "--std")) for option in chosen):
        chosen = ("-std=c++17", *chosen)
    sha = hashlib.sha256("\0".join((nvrtc.version(), FORMAT, *chosen, text)).encode()).hexdigest()
    usage = json.loads(cached(cache_folder() / "standin" / f"{sha}.cubin", lambda: _usage(text, chosen)))
    found = {}
    for name, registers, shared, local, constants in usage["kernels"]:
        parameters = signature(text, name)
        if (size := _size(parameters)) != constants - PARAMETERS[1]:
            raise AssertionError(f"{name} has {constants - PARAMETERS[1]} B of arguments; read from its text: {size} B")
        found[name] = Needs(registers, shared, local, parameters)
    return Compiled(found, {name: bytes.fromhex(value) for name, value in usage["variables"].items()}, usage["ptx"])


def _usage(text: str, options: tuple[str, ...]) -> bytes:
    """JSON: name, registers, shared and local bytes, and bytes of constants of each kernel; the variables; the PTX."""
    try:
        ptx, cubin = nvrtc.built(Request(text, "decode.cu", options, ("ptx", "cubin"), {}, os.getcwd()))
    except CompileError as error:
        raise CompilationFailed(error.report) from None
    reserved = sass.RESERVED_SHARED if sass.RESERVED_SECTION in cubin else 0
    rows = []
    for name, registers, stack, shared, local, constants in USAGE.findall(sass._tool("cuobjdump", cubin, "-res-usage")):
        own = max(0, int(shared) - reserved)
        rows.append((name, int(registers), own, int(stack) + int(local), int(constants)))
    values = {name: value.hex() for name, value in sass.variables(cubin)}
    return json.dumps({"kernels": rows, "variables": values, "ptx": ptx.rstrip(b"\0").decode()}).encode()


def signature(text: str, name: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, read from its text. The lab's macros declare stage_<name> as stage_##S."""
    for written in (name, r"stage_##S" if name.startswith("stage_") else name):
        if found := re.search(SIGNATURE.format(name=written), text):
            return tuple(_parameter(part) for part in found[1].replace("\\", " ").split(",") if part.strip())
    raise AssertionError(f"the stand-in finds no signature of {name} in the text")


def _parameter(declared: str) -> Parameter:
    words = declared.replace("*", " * ").replace("__restrict__", " ").split()
    kind = [word for word in words[:-1] if word not in ("const", "volatile")]
    return Parameter(words[-1], " ".join(kind), "*" in words and "const" not in words)


def _size(parameters: Sequence[Parameter]) -> int:
    at = 0
    for parameter in parameters:
        at = -(-at // parameter.size) * parameter.size + parameter.size
    return at
