"""Registers, spills, shared memory and instructions of a compiled kernel, read from the cubin without a GPU."""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from common.cache.files import cached
from common.compile.nvrtc import compile_cubin, version
from common.compile.source import Source
from common.compile.target import number
from common.display.table import Shown
from common.errors import LabError
from common.errors.machine import of_system
from common.model.stages import STAGES

# Opcodes that keep their modifiers in a histogram: they move data between threads or memories, or order moves.
# All others (FFMA, IMAD, ...) are counted by their bare name.
DETAILED = re.compile(r"U?(LD(?!C)|ST|ATOM|RED|BLK|TMA|CCTL|MEMBAR|FENCE|BAR|SYNCS|DEPBAR|WARPSYNC|SHFL)")
# From sm_90 on the first KiB of a block's shared memory is reserved; SHARED includes it if the kernel has any.
# A cubin with that reservation carries this section.
RESERVED_SHARED, RESERVED_SECTION = 1024, b".nv.shared.reserved"

ELF_HEADER, ELF_SECTION, ELF_SYMBOL = "<16xHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"
SYMTAB, OBJECT = 2, 1  # types of a section, and of a symbol
TOOLKIT = "/usr/local/cuda/bin"  # where a CUDA toolkit that is not on PATH is

SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+),.*$", re.MULTILINE)
USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
LINE = re.compile(r'^\s*//## File "(.*?)", line (\d+)')
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)")


@dataclass(frozen=True, repr=False)
class Resources(Shown):
    """Resources of one kernel on one arch, per thread unless stated otherwise.

    registers    32-bit registers
    spill_bytes  bytes moved by the kernel's STL and LDL instructions, each instruction counted once: the "spill
                 stores" plus "spill loads" of ptxas, and accesses to arrays it could not keep in registers. Read from
                 the code and not from a log, so that it also holds for cubins out of a cache.
    stack, local bytes of local memory
    shared       shared memory of a block in bytes, static or dynamic, without the system's share
    histogram    instructions by opcode, with the modifiers where they matter: LDG.E.128, LDGSTS.E.BYPASS.128, ...
    """

    arch: str
    kernel: str
    registers: int
    spill_bytes: int
    stack: int
    local: int
    shared: int
    histogram: dict[str, int]

    def columns(self) -> dict[str, str | int]:
        sizes = {"registers": self.registers, "spill bytes": self.spill_bytes, "shared bytes": self.shared}
        return {"arch": self.arch} | sizes | {"instructions": sum(self.histogram.values())}

    def count(self, opcode: str, *modifiers: str) -> int:
        """Number of instructions `opcode` with at least these modifiers: count("LDG", "128")."""
        if not all(isinstance(part, str) for part in (opcode, *modifiers)):
            raise LabError(f"{(opcode, *modifiers)} is no opcode with modifiers", 'give texts: count("LDG", "128")')
        wanted = set(modifiers)
        return sum(
            number
            for name, number in self.histogram.items()
            if name.split(".")[0] == opcode and wanted <= set(name.split(".")[1:])
        )


def resources(cubin: bytes, arch: str, kernel: str = "decode", cache_dir: Path | None = None) -> Resources:
    """Read one kernel of a cubin. Raises LabError when the kernel or NVIDIA's binary tools are missing.

    nvdisasm takes about half a second to start; `cache_dir` keeps its output, by cubin, options and program.
    """
    listing = sass(cubin, kernel, cache_dir)
    usage = {name: tuple(map(int, row)) for name, *row in USAGE.findall(_tool("cuobjdump", cubin, "-res-usage"))}
    registers, stack, shared, local = usage[kernel]
    if shared and RESERVED_SECTION in cubin:
        shared -= RESERVED_SHARED
    declared = int.from_bytes(dict(variables(cubin)).get("shared_bytes", b""), "little")  # static and dynamic
    histogram = Counter(opcode for _, _, opcode in instructions(listing))
    return Resources(
        arch=arch,
        kernel=kernel,
        registers=registers,
        spill_bytes=sum(_width(name) * number for name, number in histogram.items() if name[:3] in ("STL", "LDL")),
        stack=stack,
        local=local,
        shared=max(shared, declared),
        histogram=dict(sorted(histogram.items())),
    )


def variables(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each initialized variable of a cubin, an ELF file of 64 bits."""
    header = struct.unpack_from(ELF_HEADER, cubin)
    start, size, count = header[5], header[10], header[11]
    sections = [struct.unpack_from(ELF_SECTION, cubin, start + size * number) for number in range(count)]
    for _, kind, _, _, at, length, names, *_ in sections:
        for offset in range(at, at + length, struct.calcsize(ELF_SYMBOL)) if kind == SYMTAB else ():
            name, info, _, place, value, extent = struct.unpack_from(ELF_SYMBOL, cubin, offset)
            if info & 15 == OBJECT and 0 < place < count:
                begin = sections[names][4] + name
                content = cubin[sections[place][4] + value :][:extent]
                yield cubin[begin : cubin.index(b"\0", begin)].decode(), content


def inspect(source: Source, archs: Sequence[str], cache: Path) -> dict[str, Resources]:
    """Resources by arch, where the source supports it. Raises CompileError, or LabError without tools.

    The kernels of a text with one kernel per stage are reported as one, `stage_*`: the largest registers, stack and
    memory of all of them, and the sum of their spills and instructions.
    """
    fit = [arch for arch in archs if number(arch) >= source.min_arch]
    names = [f"stage_{stage}" for stage in STAGES] if source.by_stage else ["decode"]

    def of(arch: str) -> Resources:
        cubin = compile_cubin(source.text, arch, source.name, cache)
        found = [resources(cubin, arch, name, cache) for name in names]
        return _together(found) if source.by_stage else found[0]

    version()  # load the library once, before the threads use it
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(fit, pool.map(of, fit), strict=True))


def _together(kernels: Sequence[Resources]) -> Resources:
    fields = ("registers", "stack", "local", "shared")
    most = {field: max(vars(kernel)[field] for kernel in kernels) for field in fields}
    histogram = sum((Counter(kernel.histogram) for kernel in kernels), Counter[str]())
    spills = sum(kernel.spill_bytes for kernel in kernels)
    return Resources(kernels[0].arch, "stage_*", spill_bytes=spills, histogram=dict(sorted(histogram.items())), **most)


def sass(cubin: bytes, kernel: str = "decode", cache_dir: Path | None = None) -> str:
    """nvdisasm's listing of one kernel, with the file and line of each run of instructions."""
    if cache_dir is None:
        text = _tool("nvdisasm", cubin, "-c", "-g")
    else:
        made_by = os.stat(_find("nvdisasm"))  # --version would take as long as a listing
        sha = hashlib.sha256(f"{made_by.st_size} {made_by.st_mtime_ns} ".encode() + cubin).hexdigest()
        text = cached(cache_dir / f"{sha}.sass", lambda: _tool("nvdisasm", cubin, "-c", "-g").encode()).decode()
    _, *parts = SECTION.split(text)  # text before the first kernel, then name, listing, name, listing, ...
    listings = dict(zip(parts[::2], parts[1::2], strict=True))
    if kernel not in listings:
        raise LabError(
            f"the cubin holds no kernel {kernel}, but {', '.join(listings) or 'none at all'}",
            f'declare it as extern "C" __global__ {kernel}',
        )
    return listings[kernel]


def instructions(listing: str) -> Iterator[tuple[str, int, str]]:
    """(file, line, opcode) of each instruction, inlined code by its own line; padding (@!PT) is left out."""
    file, line = "", 0
    for row in listing.splitlines():
        if place := LINE.match(row):
            file, line = place[1], int(place[2])
        elif (found := INSTRUCTION.match(row)) and (found[1] or "").strip() != "@!PT":
            yield file, line, found[2] + (found[3] if DETAILED.match(found[2]) else "")


def _width(opcode: str) -> int:
    """Bytes per thread of one load or store; 4 unless a modifier says otherwise."""
    sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
    return next((sizes[part] for part in opcode.split(".") if part in sizes), 4)


def _tool(tool: str, cubin: bytes, *flags: str) -> str:
    """Output of one of NVIDIA's binary tools on a cubin."""
    path = _find(tool)
    try:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            done = subprocess.run([path, *flags, file.name], capture_output=True, text=True)
    except OSError as error:
        raise of_system(error, f"{tool} cannot be given the cubin") from error
    if done.returncode:
        raise LabError(
            f"{tool} refuses the cubin: {done.stderr.strip() or done.stdout.strip()}",
            f"install a {tool} as new as the compiler: pip install -U nvidia-cuda-{tool}",
        )
    return done.stdout


def _find(tool: str) -> str:
    """Path of the tool in its wheel, else in a CUDA toolkit."""
    package = find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        for path in sorted(Path(folder).glob(f"*/bin/{tool}"), reverse=True):
            return str(path)
    if found := shutil.which(tool) or shutil.which(tool, path=TOOLKIT):
        return found
    raise LabError(f"{tool} is not installed", f"pip install nvidia-cuda-{tool}, or put a CUDA toolkit on PATH")
