"""The stages of one decode step, in order, and their taps.

A stage is defined here and nowhere else. Its name is the same in torch, CUDA, NVTX, errors and tables. To add one,
write its line here, a function of its name in `common/kernel/decode.cuh`, and its tap in
`common/validate/reference.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.model.shapes import Model

WARP = 32  # threads
MAX_THREADS = 1024  # CUDA's limit of one block
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """Properties of a stage, without its computation.

    tap      shape of its fp32 result in scratch; None: without one
    gains    number of a norm's gains, which come from memory once for all blocks and heads; None: no norm
    cached   True if it reads the KV cache
    """

    tap: Callable[[Model], Shape] | None = None
    gains: Callable[[Model], int] | None = None
    cached: bool = False


FIRST: Mapping[str, Stage] = {
    "embed": Stage(lambda m: (m.hidden,)),  # the token's row, and the RoPE angles of its position
}
LAYER: Mapping[str, Stage] = {
    "input_norm": Stage(lambda m: (m.hidden,), gains=lambda m: m.hidden),
    "qkv": Stage(lambda m: (m.query + 2 * m.kv,)),
    # queries; keys and values go to the cache
    "qk_norm_rope": Stage(lambda m: (m.query,), gains=lambda m: 2 * m.head_dim * m.qk_norm),
    "attention": Stage(lambda m: (m.query,), cached=True),
    "o_proj": Stage(lambda m: (m.hidden,)),  # with the residual added
    "post_norm": Stage(lambda m: (m.hidden,), gains=lambda m: m.hidden),
    "gate_up": Stage(lambda m: (m.intermediate,)),  # silu(gate) * up
    "down": Stage(lambda m: (m.hidden,)),  # with the residual added
}
LAST: Mapping[str, Stage] = {
    "final_norm": Stage(lambda m: (m.hidden,), gains=lambda m: m.hidden),
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
