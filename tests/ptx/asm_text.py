"""The text of asm.cuh, the functions that it declares, and PTX of small kernels that call them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from common.compile.nvrtc import compile_ptx
from common.compile.source import KERNEL, flatten
from common.devices.ptx.text import parse
from common.model.stages import declare

SEEN: set[Path] = set()
ASM = "\n".join(line for name in ("asm", "entry") for line in flatten(KERNEL / f"{name}.cuh", SEEN))
INLINE = (KERNEL / "asm.cuh").read_text()  # without what it includes
FUNCTION = re.compile(
    r"^(?:template <(?P<template>[^>]*)> ?\n?)?"
    r"(?P<before>(?:\[\[noreturn\]\] )?(?:DEVICE|PLACED|inline)) (?P<returns>[\w <>]+?[ *])(?P<name>\w+)"
    r"\((?P<takes>[^)]*(?:\(\))?[^)]*)\) \{",
    re.MULTILINE,
)
TAKES = (
    "unsigned *data, unsigned *word, unsigned long long *wide, unsigned *first, unsigned *second, float *value, "
    "const Weight *weights"
)
COMPUTING = (
    "mov",
    "cvta",
    "cvt",
    "ret",
    "add",
    "and",
    "shl",
    "setp",
    "selp",
    "bra",
)  # unless they read a special register
SPECIAL = re.compile(r"%(?:globaltimer|clock|tid)[\w.]*")
NUMBER = re.compile(rf"-?\d[\d.]*|{SPECIAL.pattern}")


def text(bodies: Iterable[str], asm: str = ASM) -> str:
    """Source of kernels kernel_0, kernel_1, ... that follow the text of asm.cuh."""
    constants = "constexpr int block_threads = 96;\nconstexpr int loader_warps = 0;"
    kernels = (f'extern "C" __global__ void kernel_{at}({TAKES}) {{ {body} }}' for at, body in enumerate(bodies))
    return "\n".join(["using size_t = decltype(sizeof(0));", constants, declare(), asm, '#line 1 "kernels"', *kernels])


def instructions(bodies: Sequence[str], asm: str = ASM) -> list[list[str]]:
    """The instructions of each kernel that do more than compute: opcode, modifiers, and operands that are numbers."""
    module = parse(compile_ptx(text(bodies, asm), "sm_90"))
    found = []
    for at in range(len(bodies)):
        texts = [each.text for each in module.kernels[f"kernel_{at}"].body if each.kind == "instruction"]
        numbers = dict(match.groups() for each in texts if (match := re.match(r"mov\.\w+ (%\w+), (-?\d+)$", each)))
        found.append([shown for each in texts if (shown := _shown(each, numbers))])
    return found


def _shown(instruction: str, numbers: Mapping[str, str]) -> str:
    name, _, rest = re.sub(r"^@!?%\w+ +", "", instruction).partition(" ")
    opcode = name.split(".")[0]
    if name.startswith("ld.param") or (opcode in COMPUTING and not SPECIAL.search(rest)):
        return ""
    if opcode in ("ld", "st"):
        return re.sub(r"\.[usf](?=\d+$)", ".b", name)  # the type only says how many bits
    given = (numbers.get(each.strip(), each.strip()) for each in rest.split(","))
    return " ".join([name, *(each for each in given if NUMBER.fullmatch(each))])


def functions(asm: str) -> dict[str, str]:
    """Signatures of device functions, without names of parameters: "load(const void *)" and what stands before it.

    Their defaults are left out, and so is what only inlines.
    """
    found: dict[str, str] = {}
    for match in FUNCTION.finditer(asm):
        takes = [part.strip() for part in match["takes"].split(",") if part.strip()]
        plain = [part.partition(" =")[0] for part in takes]
        types = [re.sub(r"(?<=[ *&])\w+$", "", part).strip() if len(part.split()) > 1 else part for part in plain]
        template = re.sub(r"L1 \w+", "L1", match["template"] or "")
        noreturn = "[[noreturn]] " if "noreturn" in match["before"] else ""
        signature = f"{match['name']}({', '.join(types)})"
        assert signature not in found, signature
        found[signature] = f"<{template}> {noreturn}{match['returns'].strip()}"
    return found


def bodies(asm: str) -> dict[str, str]:
    """The text of each device function, with what stands before the next one."""
    ends = [match.end() for match in FUNCTION.finditer(asm)]
    return {name: asm[start:end] for name, start, end in zip(functions(asm), ends, [*ends[1:], -1], strict=True)}
