"""The stages of one decode step, in order, and their taps.

A stage is defined here and nowhere else. Its name is the same in torch, CUDA, NVTX, errors and tables. To add one,
write its line here, a function of its name in `common/kernel/decode.cuh`, and its tap in
`common/validate/reference.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.model.shapes import Model

WARP = 32  # threads
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """Properties of a stage, without its computation.

    tap      shape of its fp32 result in scratch; None: without one
    norm     True for an RMSNorm of the residual stream
    cached   True if it reads the KV cache
    """

    tap: Callable[[Model], Shape] | None = None
    norm: bool = False
    cached: bool = False


FIRST: Mapping[str, Stage] = {
    "embed": Stage(lambda m: (m.hidden,)),  # the token's row, and the RoPE angles of its position
}
LAYER: Mapping[str, Stage] = {
    "input_norm": Stage(lambda m: (m.hidden,), norm=True),
    "qkv": Stage(lambda m: (m.query + 2 * m.kv,)),
    "qk_norm_rope": Stage(lambda m: (m.query,)),  # queries; keys and values go to the cache
    "attention": Stage(lambda m: (m.query,), cached=True),
    "o_proj": Stage(lambda m: (m.hidden,)),  # with the residual added
    "post_norm": Stage(lambda m: (m.hidden,), norm=True),
    "gate_up": Stage(lambda m: (m.intermediate,)),  # silu(gate) * up
    "down": Stage(lambda m: (m.hidden,)),  # with the residual added
}
LAST: Mapping[str, Stage] = {
    "final_norm": Stage(lambda m: (m.hidden,), norm=True),
    "lm_head": Stage(lambda m: (m.vocab,)),
    "argmax": Stage(),  # the token goes to the state
}

DEFINITIONS = {**FIRST, **LAYER, **LAST}
LAYER_STAGES = tuple(LAYER)
STAGES = tuple(DEFINITIONS)


def taps(stages: Mapping[str, Stage], model: Model) -> dict[str, Shape]:
    """Shapes of the taps of `stages` for `model`, by stage."""
    return {name: stage.tap(model) for name, stage in stages.items() if stage.tap}


def declare() -> str:
    """The stages as C++: `enum class Stage`, and the order as the lists FIRST_STAGES, LAYER_STAGES and LAST_STAGES.

    Each list is a macro that applies another one to every name: LAYER_STAGES(DO) is DO(input_norm) DO(qkv) ...
    """
    lists = {"FIRST_STAGES": FIRST, "LAYER_STAGES": LAYER, "LAST_STAGES": LAST}
    return "\n".join(
        [
            f"enum class Stage {{ {', '.join(STAGES)} }};",
            *(f"#define {name}(DO) {' '.join(f'DO({stage})' for stage in some)}" for name, some in lists.items()),
        ]
    )
