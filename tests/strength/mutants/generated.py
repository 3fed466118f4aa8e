"""Mutants that operators make of every source: each place of each operator, on a stack that executes it."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import ROOT
from common.model.format import read_formats
from tests.strength.mutants.equivalent import has_no_result, why_equivalent
from tests.strength.mutants.mutation import Edit, Mutant
from tests.strength.mutants.operators import OPERATORS, Operator, code

AREA = "operators"
BY_VALUE = ("joint_heads", "folded_norm", "by_value")
TOKEN = (*BY_VALUE, "value_token")
COUNTED = (*BY_VALUE, "counted_sums")
COLUMNS = ("joint_heads", "by_value", "bulk_ring", "columns")
STREAM = ("joint_heads", "by_value", "bulk_ring", "stream_kv")
ROWS, SCORES = (*COLUMNS, "tensor_rows"), (*STREAM, "tensor_scores")
# A change in a text that every kernel shares is checked on the stacks among these with other compiled code: between
# them they execute all of it, with both widths of loads, entries of the cache that a block keeps, and phases of a ring.
SHARED_BY: tuple[tuple[str, ...], ...] = (
    (),
    ("vec128",),
    ("atomic_barrier",),
    ("redundant_rmsnorm",),
    ("joint_heads",),
    (*ROWS, "stream_kv"),
)
# By the name of a file that needs more than itself; what some of its text needs comes after the first.
VERIFY, VERIFY_COLUMNS = ("redundant_rmsnorm", "vec128", "verify"), ("bulk_ring", "columns", "verify")
VERIFY_ROWS = ("bulk_ring", "columns", "tensor_rows", "verify")
VERIFY_HEADS, VERIFY_STREAM = (*COLUMNS, "verify"), (*COLUMNS, "stream_kv", "verify")
STACKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "productive_spin": (("atomic_barrier", "productive_spin"),),
    "bulk_ring": (("bulk_ring",), ("multi_step", "bulk_ring")),
    "hot_l2": (("bulk_ring", "hot_l2"),),
    "head_prefetch": (("bulk_ring", "head_prefetch"),),
    **dict.fromkeys(("by_value", "mail"), (BY_VALUE, COLUMNS)),
    **dict.fromkeys(("value_token", "choice"), (TOKEN,)),
    **dict.fromkeys(("columns", "ring"), (COLUMNS, ROWS, VERIFY_COLUMNS)),
    "weights": ((), ("vec128",), ("cp_async",), ("warp_split",), COLUMNS, ROWS, COUNTED),
    **dict.fromkeys(("tensor", "tensor_rows"), (ROWS,)),
    **dict.fromkeys(("tensor_heads", "tensor_scores"), (SCORES,)),
    "terms": (ROWS, SCORES),
    "asm": (*SHARED_BY, TOKEN, COUNTED, ROWS),
    **dict.fromkeys(("counted_sums", "sums"), (COUNTED,)),
    "split_softmax": (STREAM,),
    "stream_kv": (STREAM, (*STREAM, "value_token"), VERIFY_STREAM),  # a launch decodes one token, and several
    **dict.fromkeys(("verify", "drafts"), (VERIFY, VERIFY_COLUMNS, VERIFY_HEADS)),
    "joint_heads": (("joint_heads",), VERIFY_HEADS),
}
# Formats of these stacks, where a file is in no kernel of bf16; another format in each.
SCALED = {
    (): "int4:8:zeros/int4:8:zeros/fp8",
    ("vec128",): "int8:8/int8:8/int8",
    ("cp_async",): "fp8:8:fp16/fp8:8:fp16",
    ("warp_split",): "int4:8/int4:8",
    COLUMNS: "int8:8:zeros/int8:8:zeros/int8",
    COUNTED: "int4:8/int4:8/fp8",
    ROWS: "int4:32:zeros/int4:32:zeros",
    (*ROWS, "stream_kv"): "int4:32/int4:32/int8",
    (*ROWS, "hot_l2"): "int8:32/int8:32",
    (*ROWS, "value_token"): "fp8:32/fp8:32",
    (*ROWS, "multi_step"): "int8:32:zeros/int8:32:zeros",
    SCORES: "bf16/bf16/int8",
}
OF_ENTRIES = "bf16/bf16/int8"  # for what reads entries of the cache in any format: a scale of bf16 is 1


def equivalent(mutant: Mutant) -> str:
    """Why the mutant is no fault; '' if that is not known."""
    if mutant.area != AREA:
        return mutant.reason if mutant.expect == "equivalent" else ""
    (edit,), (place, _, change) = mutant.edits, mutant.name.partition(": ")
    return why_equivalent(edit.file, int(place.split(":")[1]), edit.old.split("\n")[0], mutant.kind, change)


def generate() -> Iterator[Mutant]:
    """All mutants, file by file, no text twice. Their stack is the first of `stacks`."""
    files = [*sorted((ROOT / "common" / "kernel").glob("*.cuh")), *sorted((ROOT / "variants").glob("*.cu"))]
    for path in files:
        made = mutants_of(str(path.relative_to(ROOT)), path.read_text())
        yield from (one for one in made if not has_no_result(one.edits[0].file, one.edits[0].old.split("\n")[0]))


def drawn(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """`size` of the mutants, each as likely as any other; all of them if there are fewer."""
    return random.Random(seed).sample(mutants, min(size, len(mutants)))


def stacks(file: str) -> Sequence[tuple[str, ...]]:
    """The stacks on which changes of `file` are checked; for a variant the one that it adds its own idea to."""
    name = Path(file).stem
    if name in STACKS:
        return STACKS[name]
    if name in ("scaled", "entries"):
        return tuple(SCALED)
    return SHARED_BY if file.startswith("common/") or name == "baseline" else ((name,),)


def format_of(file: str, names: tuple[str, ...]) -> str:
    """The formats, as `read_formats` reads them, in which a change of `file` is checked on a stack."""
    name = Path(file).stem
    if name in ("scaled", "entries") or (name, names) == ("asm", ROWS):
        return SCALED[names]
    return OF_ENTRIES if name in ("attention", "split_softmax", "tensor_heads") else "bf16"


def mutants_of(file: str, text: str, operators: Sequence[Operator] = OPERATORS) -> Iterator[Mutant]:
    """The mutants of one text."""
    visible, seen = code(text), {text}
    for operator in operators:
        for start, end, new in operator.edits(visible):
            if "\0" in new:  # hidden text, such as the operands of asm
                continue
            mutated = text[:start] + new + text[end:]
            if mutated not in seen:
                seen.add(mutated)
                yield _mutant(file, text, operator.name, start, end, new)


def _mutant(file: str, text: str, operator: str, start: int, end: int, new: str) -> Mutant:
    """The edit of whole lines, so that its text is found by what it says and not by its position."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    old = text[first : last + 1]
    changed = old[: start - first] + new + old[end - first :]
    edit = Edit(file, old, changed, text.count(old, 0, first) + 1, text.count(old))
    place = f"{file}:{text.count(chr(10), 0, start) + 1}:{start - first + 1}"
    title = f"{place}: {' '.join(text[start:end].split())} -> {' '.join(new.split()) or 'nothing'}"
    names = stacks(file)[0]
    formats = dict(zip(("format", "head_format", "kv_format"), read_formats(format_of(file, names)), strict=True))
    sizes = {key: form for key, form in formats.items() if form != "bf16"}
    return Mutant(title, operator, AREA, names, (edit,), sizes=sizes)
