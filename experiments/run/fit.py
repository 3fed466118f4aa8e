"""GPUs of conf/gpu/ on which a stack runs with its knobs as they are."""

import re
from pathlib import Path

from common.compile.nvrtc import compile_ptx
from common.compile.source import Source
from common.compile.target import lacking, number, shared_bytes
from common.errors import LabError
from experiments.run import gpus

DECLARED = re.compile(r"shared_bytes = (\d+);")


def block_bytes(source: Source, arch: str, cache: Path) -> int:
    """Bytes of shared memory of a block on `sm_90`, from the declarations alone. Raises CompileError, and LabError
    where NVRTC is missing."""
    found = DECLARED.search(compile_ptx(source.declarations, arch, source.name, cache))
    if not found:
        raise LabError(f"{source.name} does not say how much shared memory it needs", "use SHARED_BYTES in entry.cuh")
    return int(found[1])


def gpus_for(source: Source, cache: Path) -> str:
    """`runs on A100, H100; not on T4: ...`: the GPUs by name, and why it does not run on others."""
    names: dict[str, list[str]] = {}
    for gpu in map(gpus.read, gpus.names()):
        arch = number(gpu.arch)
        if arch < source.min_arch:
            reason = f"{gpu.arch} is without {lacking(source.min_arch, arch)}"
        else:
            needed, most = block_bytes(source, gpu.arch, cache), shared_bytes(arch)
            reason = f"it needs {needed} B of shared memory a block, of {most} B" if needed > most else ""
        names.setdefault(reason, []).append(gpu.name)
    runs = f"runs on {', '.join(names.pop('', [])) or 'none of conf/gpu/'}"
    return "; ".join([runs, *(f"not on {', '.join(those)}: {reason}" for reason, those in names.items())])
