"""Clocks of each stage by cause of the wait, from its input to its publication."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from common.compile.nvrtc import compile_cubin
from common.compile.sass import block_bytes
from common.compile.source import Source
from common.model.stages import LAYER, STAGES
from experiments.prediction.sass.buffers import Buffers
from experiments.prediction.sass.lane import Lane
from experiments.prediction.sass.program import Program
from experiments.prediction.sass.walk import POLL, STREAM, TILE, Span, Walk

Clocks = Mapping[str, float]  # by cause
SPECIAL = ("SR_TID.X", "SR_CTAID.X", "SR_LANEID", "SR_CgaCtaId", "SR_SWINHI")


@dataclass(frozen=True)
class Chain:
    """One stage of one layer: the critical path of one warp.

    before   clocks until it has what it needs to multiply the first tile, or until the end where it multiplies none
    turns    tiles that it multiplies, or groups of loads that are under way together
    turn     clocks of one; first: clocks of the first one beyond that; after: from the last one to the end
    issued   instructions of a turn; l1_bytes: of a lane in a turn, through L1 or shared memory
    loaded   bytes of a lane in all turns, of matrices; flight: the most in flight at once
    hidden   clocks of work that overlaps the wait for results of other blocks
    """

    before: Clocks
    turns: int
    turn: Clocks
    first: Clocks
    after: Clocks
    issued: float
    l1_bytes: float
    loaded: float
    flight: float
    hidden: float

    @property
    def all(self) -> Clocks:
        """Clocks of the whole stage."""
        return add(self.before, self.first, times(self.turn, self.turns), self.after)


@dataclass(frozen=True)
class Chains:
    """Chains by stage, and the latencies that they were walked with: clocks by cause.

    shared_bytes: shared memory of a block, as the kernel declares it.
    """

    stages: Mapping[str, Chain]
    latency: Clocks
    shared_bytes: int = 0


def chains(source: Source, arch: str, blocks: int, position: int, latency: Clocks, cache_dir: Path) -> Chains:
    """Chains of all stages of `source` compiled for `arch`; latency: as `Walk` takes it.

    Raises CompileError, and LabError without NVRTC or nvdisasm, or where the walk fails.
    """
    cubin = compile_cubin(source.text, arch, source.name, cache_dir)
    buffers = Buffers(source, position)
    kernels = {f"stage_{stage}": stage for stage in STAGES} if source.by_stage else {"decode": ""}
    spans: list[Span] = []
    for kernel, stage in kernels.items():
        program = Program.read(cubin, kernel, cache_dir, stage)
        lane = Lane(buffers.constants(cubin, kernel, blocks), dict.fromkeys(SPECIAL, 0))
        spans += Walk(program, lane, buffers, latency).spans()
    return Chains(summary(spans, source.model.layers), latency, block_bytes(cubin))


def summary(spans: Sequence[Span], layers: int) -> dict[str, Chain]:
    """The chain of each stage that has one, of the layer in the middle."""
    by_stage: dict[tuple[str, int], list[Span]] = {}
    layer, last = 0, 0
    for span in spans:
        if span.stage in LAYER:
            place = STAGES.index(span.stage)
            layer, last = layer + (last - place > len(LAYER) // 2), place
        by_stage.setdefault((span.stage, layer if span.stage in LAYER else 0), []).append(span)
    middle = {stage: layers // 2 if (stage, layers // 2) in by_stage else 0 for stage in STAGES}
    return {stage: chain(by_stage[stage, middle[stage]]) for stage in STAGES if (stage, middle[stage]) in by_stage}


def chain(spans: Sequence[Span]) -> Chain:
    """The chain of one stage of a layer."""
    seen = [span for span in spans if not span.hidden]
    begins = turns_of(seen)
    groups = [seen[begin:end] for begin, end in pairwise([*begins, len(seen)])]
    # The first turns may wait for more than others, and with the last ones the stage ends.
    usual = groups[1:-1] or groups[:-1]
    share = 1 / max(1, sum(map(waits, usual)))
    turn = times(total(span for group in usual for span in group), share)
    if len(groups) == 2:
        of_last = times(total(groups[1]), 1 / waits(groups[1]))
        turn = {cause: min(clocks, of_last.get(cause, 0.0)) for cause, clocks in turn.items()}
    first = subtract(total(groups[0]), times(turn, waits(groups[0]))) if len(groups) > 1 else {}
    after = subtract(total(groups[-1]), times(turn, waits(groups[-1]))) if groups else {}
    return Chain(
        before=total(seen[: begins[0]] if begins else seen),
        turns=sum(map(waits, groups)),
        turn=turn,
        first=first,
        after=after,
        issued=share * sum(span.issued for group in usual for span in group),
        l1_bytes=share * sum(span.l1_bytes for group in usual for span in group),
        loaded=sum(span.loaded for span in seen),
        flight=max((span.flight for span in seen), default=0),
        hidden=sum(clocks for cause, clocks in total(span for span in spans if span.hidden).items() if cause != POLL),
    )


def turns_of(spans: Sequence[Span]) -> list[int]:
    """The spans with which turns begin. Tiles that are waited for together are multiplied together."""
    begins: list[int] = []
    together = False
    for at, span in enumerate(spans):
        if span.event in (TILE, STREAM):
            if not together:
                begins.append(at)
            together = span.event == TILE
        together = together and not span.l1_bytes
    return begins


def waits(group: Sequence[Span]) -> int:
    """Tiles, or groups of loads, that a turn takes."""
    return sum(span.event in (TILE, STREAM) for span in group)


def total(spans: Iterable[Span]) -> dict[str, float]:
    return add(*(span.clocks for span in spans))


def add(*several: Clocks) -> dict[str, float]:
    causes = dict.fromkeys(cause for clocks in several for cause in clocks)
    return {cause: sum(clocks.get(cause, 0.0) for clocks in several) for cause in causes}


def times(clocks: Clocks, factor: float) -> dict[str, float]:
    return {cause: factor * each for cause, each in clocks.items()}


def subtract(clocks: Clocks, less: Clocks) -> dict[str, float]:
    """The rest of each cause, none of them negative."""
    left = {cause: each - less.get(cause, 0.0) for cause, each in clocks.items()}
    return {cause: each for cause, each in left.items() if each > 0}


def as_row(found: Chains) -> dict[str, Any]:
    """Chains as a record has them: to a tenth of a clock."""
    by_stage = {stage: _rounded(vars(one)) for stage, one in found.stages.items()}
    return {"latency": _rounded(found.latency), "chains": by_stage, "shared_bytes": found.shared_bytes}


def as_chains(latency: Clocks, found: Mapping[str, Mapping[str, Any]], shared_bytes: int) -> Chains:
    """Chains of a record."""
    return Chains({stage: Chain(**one) for stage, one in found.items()}, latency, shared_bytes)


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    return round(value, 1)
