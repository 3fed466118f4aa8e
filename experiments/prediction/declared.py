"""Quantities that a variant declares: its ring, exchanges and prefetches, as expressions over knobs and shapes.

`work` in a variant's yaml:

work:
  blocks_at_work: {attention: heads * (position // chunk + 1)}
  loading_threads: {matrices: 32 * producers if producers else default}

An expression (`common.model.expressions`) may use knobs of the variant and of its requirements, whole numbers of the
model's shape, `threads` of a block, `position` of the token, `row_bytes` and `head_row_bytes`, of a row of the stage's
matrices (0 where it has none) and of lm_head, and `default`: the value without the variant.
"""

from collections.abc import Collection, Mapping
from functools import cache

from common.compile.source import Source
from common.errors import LabError
from common.model.expressions import SHAPES, check, evaluate
from common.model.stages import DEFINITIONS, STAGES, WARP
from common.stacks.catalog import BASELINE, read_catalog

Work = Mapping[str, Mapping[str, str]]  # quantity, then stage, then expression

QUANTITIES = (
    "loading_threads",  # of a block, where not all load weights
    # A ring in shared memory that one warp of a block fills. Without one, loads hold registers.
    "ring_bytes",
    "tile_bytes",  # of one copy
    "window_bytes",  # under way at most
    "ahead",  # 1: copies do not wait for the stage's input
    "copied_by",  # blocks that each copy an entry of the cache into their rings
    # Blocks, and exchanges between two stages.
    "blocks_at_work",  # blocks that attend, where the grid is large enough
    "extra_barriers",  # of the grid, per layer, in addition to those counted at position 1
    "by_value",  # exchanges by sentinel (flag-in-data) in place of a barrier after the stage
    "prefetched",  # matrices of the stage that an earlier stage may have prefetched
    # Bytes of lm_head, evenly among its tiles, that a block's loader asks L2 for after its copies of the stage: of all
    # layers together.
    "loader_prefetches",
    "prefetch_while_idle",  # 1: blocks without work in the stage prefetch; 0: all do, at the barrier after it
)
MATRICES, ALL = "matrices", "all"  # in place of a stage: all with weight matrices; every stage
DEFAULT = "default"


@cache
def work_of(name: str) -> Work:
    """The `work` of a variant, checked. Raises LabError that names its yaml."""
    known = read_catalog().variants
    knobs = (knob for each in (name, *known[name].requires) if each in known for knob in known[each].knobs)
    constants = [constant for knob in knobs for constant in knob.constants(knob.default, 8 * WARP)]
    try:
        return read_work(known[name].work, constants)
    except LabError as error:
        raise LabError(f"conf/variant/{name}.yaml {error.cause}", error.remedy) from None


def quantity(source: Source, name: str, stage: str, position: int, default: int) -> int:
    """`default`, as the baseline and each variant of the stack change it in turn."""
    model, columns = source.model, DEFINITIONS[stage].columns
    shape = {field: getattr(model, field) for field in SHAPES}
    step = {
        "threads": source.threads,
        "position": position,
        "row_bytes": model.formats[stage == "lm_head"].row_bytes(columns(model)) if columns else 0,
        "head_row_bytes": model.formats[1].row_bytes(model.hidden),
    }
    works = {variant: work_of(variant) for variant in (BASELINE, *source.stack)}
    knobs = {name: value for constants in source.knobs.values() for name, value in constants.items()}
    for variant, work in works.items():
        expression = find(work.get(name, {}), stage)
        if expression is not None:
            given = {**step, DEFAULT: default}
            default = evaluate(expression, {**shape, **knobs, **source.knobs.get(variant, {}), **given})
    return default


def read_work(work: Mapping[str, Mapping[str, str | int]], constants: Collection[str]) -> Work:
    """The `work` of a yaml, checked.

    constants: names of the compile-time constants of the knobs that it may name.
    Raises LabError for an unknown quantity or stage, and an expression that is malformed or names something unknown.
    """
    known = (*constants, *SHAPES, "threads", "position", "row_bytes", "head_row_bytes", DEFAULT)
    for quantity, stages in work.items():
        if quantity not in QUANTITIES or not isinstance(stages, Mapping):
            raise LabError(f"work.{quantity}: {stages}", f"give {', '.join(QUANTITIES)}, each by stage")
        for stage, text in stages.items():
            place = f"work.{quantity}.{stage}: {text}"
            if stage not in (*STAGES, MATRICES, ALL):
                raise LabError(place, f"name a stage: {', '.join((*STAGES, MATRICES, ALL))}")
            check(str(text), known, place)
    return {quantity: {stage: str(text) for stage, text in stages.items()} for quantity, stages in work.items()}


def find(by_stage: Mapping[str, str], stage: str) -> str | None:
    """The expression for `stage`: its own, else under MATRICES, else under ALL; None without one."""
    groups = (stage, *((MATRICES,) if DEFINITIONS[stage].columns else ()), ALL)
    return next((by_stage[group] for group in groups if group in by_stage), None)
