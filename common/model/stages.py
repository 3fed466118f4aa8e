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
    columns  of its weight matrices, multiplied by a vector; None: without a matrix
    matrices of equal shape, multiplied by the same vector, row by row together
    norm     True for an RMSNorm of the residual stream
    cached   True if it reads the KV cache
    blocks   busy blocks of the baseline, by threads of a block, on a grid that is large enough; None: all
    """

    tap: Callable[[Model], Shape] | None = None
    columns: Callable[[Model], int] | None = None
    matrices: int = 1
    norm: bool = False
    cached: bool = False
    blocks: Callable[[Model, int], int] | None = None


def _one_block(model: Model, threads: int) -> int:
    return 1


def _block_per_head(model: Model, threads: int) -> int:
    return model.heads


def _warp_per_head(model: Model, threads: int) -> int:
    return -(-(model.heads + 2 * model.kv_heads) * WARP // threads)


FIRST: Mapping[str, Stage] = {
    "embed": Stage(lambda m: (m.hidden,), blocks=_one_block),  # the token's row, and the RoPE angles of its position
}
LAYER: Mapping[str, Stage] = {
    "input_norm": Stage(lambda m: (m.hidden,), norm=True),
    "qkv": Stage(lambda m: (m.query + 2 * m.kv,), columns=lambda m: m.hidden),
    "qk_norm_rope": Stage(lambda m: (m.query,), blocks=_warp_per_head),  # queries; keys and values go to the cache
    "attention": Stage(lambda m: (m.query,), cached=True, blocks=_block_per_head),
    "o_proj": Stage(lambda m: (m.hidden,), columns=lambda m: m.query),  # with the residual added
    "post_norm": Stage(lambda m: (m.hidden,), norm=True),
    "gate_up": Stage(lambda m: (m.intermediate,), columns=lambda m: m.hidden, matrices=2),  # silu(gate) * up
    "down": Stage(lambda m: (m.hidden,), columns=lambda m: m.intermediate),  # with the residual added
}
LAST: Mapping[str, Stage] = {
    "final_norm": Stage(lambda m: (m.hidden,), norm=True),
    "lm_head": Stage(lambda m: (m.vocab,), columns=lambda m: m.hidden),
    "argmax": Stage(blocks=_one_block),  # the token goes to the state
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
