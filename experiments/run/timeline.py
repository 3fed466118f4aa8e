"""Timeline of one step: when each block worked and waited, from timestamps that the kernel writes itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from common.lazy import pandas, torch
from common.model.layout import MAX_BLOCKS, MOMENTS
from common.model.stages import LAYER_STAGES, STAGES

if TYPE_CHECKING:
    from common.devices.protocol import Session

UNWRITTEN = 0x7FC000007FC00000  # two fp32 NaN, which `read` puts where no block has written


@dataclass(frozen=True)
class Timeline:
    """Timeline of one step. `spans` has a row for each stage, layer and block that wrote timestamps, as they begin.

    begin, end  of the stage's work, by thread 0 of the block; work begins when the input is there
    passed      when the block went on: past the barrier after the stage, or with its part of a result by value; else
                `end`
    unit        "ns" or "ordinal", counted from the first timestamp of the step
    timed       True if the difference of two timestamps is a time; False on a CPU
    """

    title: str
    unit: str
    spans: "pandas.DataFrame"

    @property
    def timed(self) -> bool:
        return self.unit == "ns"

    @property
    def parts(self) -> "pandas.DataFrame":
        """`spans`, with the time from begin to end as `work`, and from there until the block passed as `wait`."""
        begin, end, passed = (self.spans[name] for name in ("begin", "end", "passed"))
        return self.spans.assign(work=end - begin, wait=passed - end)

    @property
    def sums(self) -> "pandas.DataFrame":
        """Work and wait of each block in each stage, over all layers."""
        return self.parts.groupby(["stage", "block"])[["work", "wait"]].sum()


def read(session: "Session", title: str, device: str) -> Timeline:
    """The timeline of the last step of a session with a trace in its layout."""
    from common.devices.unwritten import fill

    slot, scratch = session.layout.tap("trace"), session.scratch()
    untouched = torch.empty_like(scratch)
    fill(untouched)
    words = scratch.view(torch.int32)
    written = (words != untouched.view(torch.int32)).view(-1, 2).any(dim=1).repeat_interleave(2)
    stamps = torch.where(written, words, torch.tensor(torch.nan).view(torch.int32)).view(torch.float32)
    stamps = stamps[slot.offset : slot.offset + slot.size]
    return timeline(stamps, session.layout.model.layers, title, "ns" if device == "cuda" else "ordinal")


def timeline(stamps: "torch.Tensor", layers: int, title: str, unit: str) -> Timeline:
    """stamps: the trace slot, fp32, [stage][layer][block][moment] of 64 bits each, NaN where nothing was written."""
    table = stamps.clone().view(torch.int64).view(len(STAGES), layers, MAX_BLOCKS, MOMENTS).numpy()
    stage, layer, block = (table[..., 1] != UNWRITTEN).nonzero()
    begin, end, passed = table[stage, layer, block].T
    passed = numpy.where(passed == UNWRITTEN, end, passed)
    start = begin.min() if len(begin) else 0
    spans = pandas.DataFrame(
        {
            "stage": [STAGES[number] for number in stage],
            "layer": layer,
            "block": block,
            "begin": begin - start,
            "end": end - start,
            "passed": passed - start,
        }
    ).sort_values(["begin", "block"])
    # What comes by value is waited for inside of a stage, whose work begins when the block has it.
    before = spans.groupby("block")["passed"].transform(lambda passed: passed.cummax().shift(fill_value=0))
    spans["begin"] = spans["begin"].clip(lower=before).clip(upper=spans["end"])
    return Timeline(title, unit, spans.sort_values(["begin", "block"], ignore_index=True))


def summary(found: Timeline) -> dict[str, Any]:
    """Fields of a record, in ns: of each stage, in the order in which they begin, and of a layer.

    work_ns, wait_ns: medians of `parts` over blocks and layers. layer_ns: median from the first begin of a layer to
    that of the next, None with fewer than two.
    """
    medians, spans = found.parts.groupby("stage", sort=False)[["work", "wait"]].median(), found.spans
    stages = medians.add_suffix("_ns").reset_index().to_dict("records")
    begins = spans[spans["stage"].isin(LAYER_STAGES)].groupby("layer")["begin"].min()
    lengths = begins.diff().dropna()
    return {"stages": stages, "layer_ns": float(lengths.median()) if len(lengths) else None}


def rewind(session: "Session", position: int, tokens: int) -> None:
    """Reset the session to `position` with a history of zeros: the values do not change the time of reading them."""
    session.layout.check_room(position, tokens)
    history = torch.zeros(session.layout.cache.stored, dtype=torch.bfloat16)
    session.reset([0] * (position + 1), position, history)
