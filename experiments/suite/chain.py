"""Clocks of the dependent instructions in each stage, read from the cubin, and their change against the parent."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from common.model.stages import FIRST, LAST, LAYER
from common.stacks.stack import Stack, title
from experiments.experiment import Experiment
from experiments.prediction.sass.chain import Chain, Clocks, add, times
from experiments.tables.result_table import COUNTED, ResultTable
from experiments.tables.row import label_of

QUESTION = "how long a block works in each stage, by what its instructions wait for"
NOTES = (
    "Clocks of one warp of block 0, from the arrival of its input to the last result that it publishes. Stalls and "
    "scoreboards are ptxas's, in each instruction; latencies come from conf/gpu/. Loads of "
    "matrices take no time here: the simulation of a prediction has them.",
    "issue: an instruction a clock. fixed: results of fixed latency. special: square roots, reciprocals, conversions. "
    "mbarrier: looks at barriers in shared memory. global: loads from L1, L2 and memory. meanwhile: work beside an "
    "exchange between blocks, in no other column.",
)
# Column: causes.
COLUMNS = {
    "issue": ("issue",),
    "fixed": ("fixed", "operands"),
    "shared": ("shared",),
    "shuffle": ("shuffle",),
    "special": ("special",),
    "mbarrier": ("phase",),
    "barrier": ("barrier",),
    "global": ("l1", "l2", "memory", "poll"),
}


def ask(experiment: Experiment) -> ResultTable:
    """Rows for each stage of each stack, a layer, and a token. Needs NVRTC and nvdisasm, no GPU."""
    gpu, position = experiment.gpu, experiment.position
    rows: list[dict[str, Any]] = []
    for stack in experiment.chosen:
        rows += experiment.attempt(label_of(stack), partial(_rows, experiment, stack)) or []
    question = f"{QUESTION}: {gpu.name}, position {position}"
    return ResultTable("chain", question, rows, COUNTED, NOTES, "a check: `profiles tool=timeline` measures stages", 2)


def _rows(experiment: Experiment, stack: Stack) -> list[dict[str, Any]]:
    own, parent = (_chains(experiment, stack, variants) for variants in (stack.variants, stack.parent))
    rows = [
        {"stage": stage, **_parts(one), **_clocks(one.all, parent[stage].all if stage in parent else {})}
        for stage, one in own.items()
    ]
    layers = experiment.model.layers
    for name, factors in (("a layer", dict.fromkeys(LAYER, 1)), ("a token", _token(layers))):
        rows.append({"stage": name, **_clocks(_sum(own, factors), _sum(parent, factors))})
    return [{"variant": label_of(stack), **row, "parent": title(stack.parent)} for row in rows]


def _chains(experiment: Experiment, stack: Stack, variants: tuple[str, ...]) -> Mapping[str, Chain]:
    predictor = experiment.predictor
    experiment.show.begin(f"read {title(variants)}")
    return predictor.walk(predictor.source(variants, stack.knobs), experiment.gpu, experiment.position).stages


def _token(layers: int) -> dict[str, int]:
    return dict.fromkeys((*FIRST, *LAST), 1) | dict.fromkeys(LAYER, layers)


def _sum(found: Mapping[str, Chain], factors: Mapping[str, int]) -> Clocks:
    return add(*(times(found[stage].all, factor) for stage, factor in factors.items() if stage in found))


def _parts(one: Chain) -> dict[str, float | None]:
    turn = sum(one.turn.values()) or None
    first = sum(one.before.values()) + sum(one.first.values())
    return {"before": first, "tiles": one.turns or None, "a tile": turn, "after": sum(one.after.values())} | {
        "meanwhile": one.hidden
    }


def _clocks(clocks: Clocks, parent: Clocks) -> dict[str, float]:
    whole, before = sum(clocks.values()), sum(parent.values())
    causes = {name: sum(clocks.get(cause, 0.0) for cause in some) for name, some in COLUMNS.items()}
    return {"clocks": whole, "more than parent": whole - before, **causes}
