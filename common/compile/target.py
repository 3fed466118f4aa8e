"""Targets of the compiler: features missing before each, and the `auto` values of knobs on each."""

from collections.abc import Mapping

from common.errors import LabError
from common.model.expressions import SHAPES, evaluate
from common.model.shapes import Model
from common.stacks.knobs import AUTO, Knob, Target
from common.stacks.variant import Variant

# KB of shared memory that a block may have, from a compute capability (ten times) on: CUDA programming guide.
SHARED_KB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 120: 99}
STATIC_SHARED = 48 << 10  # bytes; a text that needs more has only dynamic shared memory
BULK_COPIES = 90  # the first target with bulk copies
NEWS = {  # features new with a compute capability (ten times)
    80: "asynchronous copies, barriers in shared memory that count them, or bf16 in tensor cores",
    90: "bulk copies",
}

Constants = Mapping[str, int | str]


def number(arch: str) -> int:
    """90 for `sm_90`."""
    return int(arch.removeprefix("sm_"))


def shared_bytes(arch: int) -> int:
    """Bytes of shared memory that a block may have; arch: 90 for sm_90."""
    return SHARED_KB[max(first for first in SHARED_KB if first <= max(arch, min(SHARED_KB)))] << 10


def lacking(min_arch: int, arch: int) -> str:
    """Features that `arch` lacks and a stack for `min_arch` may use; "" without any."""
    return ", and ".join(what for first, what in NEWS.items() if arch < first <= min_arch)


def settled(variant: Variant, values: Constants, model: Model, arch: int, tokens_per_step: int) -> dict[str, int | str]:
    """The constants of a variant, AUTO knobs replaced by their values on `arch`."""
    target = Target(arch, shared_bytes(arch) >> 10, int(arch >= BULK_COPIES), tokens_per_step)
    known = {**{name: getattr(model, name) for name in SHAPES}, **values, **target._asdict()}
    return {
        name: next(_own(knob, known) for knob in variant.knobs if knob.name == name) if value == AUTO else value
        for name, value in values.items()
    }


def declare_knobs(variant: Variant, values: Constants, model: Model, tokens_per_step: int) -> str:
    """The knobs of one variant as C++ constants; values that depend on the GPU, by the compilation's target."""
    choices = {knob.name: knob.choices for knob in variant.knobs}
    targets = {arch: settled(variant, values, model, arch, tokens_per_step) for arch in SHARED_KB}
    rows = []
    for name in values:
        by_target = {arch: known[name] for arch, known in targets.items()}
        if any(isinstance(value, str) for value in by_target.values()):
            for choice in choices[name]:
                chosen = {arch: str(choice == value).lower() for arch, value in by_target.items()}
                rows.append(f"constexpr bool {name}_is_{choice} = {_by_arch(chosen)};")
        else:
            rows.append(f"constexpr int {name} = {_by_arch(by_target)};")
    return f"namespace knob::{variant.name} {{ {' '.join(rows)} }}"


def _by_arch(values: Mapping[int, int | str]) -> str:
    """C++ expression for the target's value. values: {first compute capability (ten times) with it: value}."""
    last = next(iter(values.values()))
    text = str(last)
    for arch, value in values.items():
        if value != last:
            text, last = f"__CUDA_ARCH__ >= {10 * arch} ? {value} : {text}", value
    return text


def _own(knob: Knob, known: Constants) -> int | str:
    try:
        value = evaluate(knob.auto, known)
        if knob.kind == "choice" and value not in range(len(knob.choices)):
            raise ValueError(f"{value} is no index in its choices")
    except (KeyError, ValueError, SyntaxError, ZeroDivisionError) as error:
        raise LabError(f"knob {knob.name}: auto: {knob.auto}: {error}", "correct it in the variant's yaml") from None
    if knob.kind == "choice":
        return knob.choices[value]
    low, high = knob.minimum, knob.maximum
    return max(value if low is None else low, min(value if high is None else high, value))
