"""Measured table: one GPU, one model, one day; the steps to the fast kernel, then another engine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.display.table import Table
from common.model.shapes import Model
from common.stacks.catalog import BASELINE
from common.stacks.stack import prefixes
from experiments.report.evidence import Evidence, Record, comparable
from experiments.tables.row import microseconds, plausible
from experiments.timing.statistics import VERDICT_CONFIDENCE

FAST, RIVALS, RIVAL, BY = "streaming", "rivals", "Triton", "stages"
FIRST = 1  # the position of the share and of the change
OPEN = "*not timed yet*"
WHOLE = "†"  # beside times of a generation
NBSP = "\u00a0"  # a space at which no line ends
UNSTABLE = "~"  # beside times whose rounds disagree


@dataclass(frozen=True)
class Place:
    """Origin of a table's times: the GPU as its driver names it, the model, and the day."""

    gpu: str
    model: str
    day: str


@dataclass(frozen=True)
class Timed:
    """Times of one row.

    us       microseconds of a token by position
    share    of the read ceiling at FIRST; None without a ceiling
    change   of the time at FIRST against the row above: (effect, low, high); None where the two were not timed in pairs
    marks    by position: UNSTABLE, WHOLE
    id       of the record
    commit   of the kernel's text, seven digits, and + where the code differed; "" where git was not there to say
    """

    us: Mapping[int, float]
    share: float | None
    change: tuple[float, float, float] | None
    marks: Mapping[int, str]
    id: str
    commit: str


@dataclass(frozen=True)
class Measured:
    """Rows of the table in order, the rival last; None for one that has no time."""

    place: Place | None
    rows: Mapping[str, Timed | None]
    tokens: int  # in the timed generation
    newer: tuple[str, Timed] | None = None  # a later day and FAST's time there, on the same GPU


def steps(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """{label: stack} of the baseline and of each step to FAST; a label begins with the step's variant."""
    whole, _ = evidence.stack_of(FAST)
    stacks = prefixes(whole, evidence.catalog)
    return {BASELINE: (), **{stack[-1] + (f" = {FAST}" if stack == whole else ""): stack for stack in stacks}}


def measured(evidence: Evidence) -> Measured:
    """The place where most steps were timed, the latest on ties, and its times."""
    stacks = steps(evidence)
    places: dict[Place, dict[str, list[Record]]] = {}
    for name, stack in stacks.items():
        for run in evidence.of_stack(FAST, stack, "latencies"):
            if any(found["position"] == FIRST for found in plausible(run)):
                place = Place(run["device"].get("gpu", ""), run["model"]["name"], run["time"][:10])
                places.setdefault(place, {}).setdefault(name, []).append(run)
    if not places:
        return Measured(None, dict.fromkeys([*stacks, RIVAL]), 0)
    place = max(places, key=lambda each: (len(places[each]), each.day))
    runs, rivals = comparable(places[place]), _rivals(evidence, place)
    found: dict[str, Timed | None] = {}
    above: tuple[str, ...] | None = None
    for name, stack in stacks.items():
        found[name] = _of_run(runs[name], above) if name in runs else None
        above = stack
    ceiling = max(_ceiling(run) for run in runs.values())
    fast = next(reversed(stacks))
    for name, engine in ((fast, FAST), (RIVAL, RIVAL)):
        if not found.get(name):
            found[name] = _of_generation(rivals[engine], ceiling) if engine in rivals else None
    tokens = next((row["asked"]["options"]["tokens"] for row in rivals.values()), 0)
    return Measured(place, found, tokens, _newer(fast, place, places))


def table(evidence: Evidence) -> Table:
    """A row for each step with its idea, then a rule and the rival; the notes say what was timed, and how."""
    now, lines = measured(evidence), []
    positions = sorted({position for row in now.rows.values() if row for position in row.us})
    heads = ["step", *_figures(None, positions), "idea"]
    for label, row in now.rows.items():
        name, _, alias = label.partition(" = ")
        if name == RIVAL:
            lines.append(dict.fromkeys(heads, "") | {"step": "**another engine**"})
            about = {"step": "[Triton](experiments/engines/triton_arm)", "idea": "the same step in its kernels"}
        else:
            step = f"{'' if name == BASELINE else f'+{NBSP}'}[{name}](variants/{name}.cu){alias and f' = `{alias}`'}"
            about = {"step": step, "idea": re.split("[:;,.] ", evidence.catalog.variants[name].idea)[0]}
        lines.append(about | _figures(row, positions))
    return Table.of(lines, heads, _notes(now, evidence.files))


def _figures(row: Timed | None, positions: Sequence[int]) -> dict[str, str]:
    """Cells of a row by head; blank where there is nothing to say."""
    times = {
        f"µs at {at}": f"{row.us[at]:,.0f}{row.marks.get(at, '')}" if row and at in row.us else "" for at in positions
    }
    share = f"{100 * row.share:.0f} %" if row and row.share else ""
    effect = [100 * each for each in row.change] if row and row.change else []
    change = f"{effect[0]:+.1f}{NBSP}% [{effect[1]:+.1f}, {effect[2]:+.1f}]" if effect else ""
    cells = times | {"of the ceiling": share, "against the row above": change}
    return cells if row else cells | {next(iter(cells)): OPEN}


def _notes(now: Measured, files: Mapping[str, str]) -> list[str]:
    if not now.place:
        return [f"{OPEN}: no record of a GPU has a step."]
    day, newer = now.newer or ("", None)
    rows = [row for row in now.rows.values() if row]
    marks = {mark for row in rows for mark in row.marks.values()}
    commits = sorted({f"`{row.commit}`" for row in rows if row.commit})
    sources = sorted({f"`experiments/results/{files[row.id]}`" for row in (*rows, newer) if row and row.id in files})
    notes = [
        f"**{now.place.gpu}, {now.place.model}, {now.place.day}**: µs a token at a position, batch 1, each kernel "
        f"validated in the run that timed it. At position {FIRST}: the share of the ceiling, the rate of a kernel that "
        "only reads, and the change of the time, in turns with the row above, with its interval "
        f"({100 * VERDICT_CONFIDENCE:.0f} %).",
        f"{WHOLE} mean over {now.tokens} tokens of a generation from there (`experiment=rivals`)." * (WHOLE in marks),
        f"{UNSTABLE} its rounds disagree (UNSTABLE)." * (UNSTABLE in marks),
        f"Kernels: their texts of {', '.join(commits)}." * bool(commits),
        f"Records: {', '.join(sources)}." * bool(sources),
    ]
    after = f"**Newer**: `{FAST}` on {day}, its text of `{newer.commit}`: {_in_words(newer)}." if newer else ""
    return [*filter(None, (" ".join(filter(None, notes)), after))]


def _newer(fast: str, place: Place, places: Mapping[Place, Mapping[str, Sequence[Record]]]) -> tuple[str, Timed] | None:
    """The last day after `place` on which its GPU timed the whole stack, and the times."""
    later = [each for each in places if each.day > place.day and replace(each, day=place.day) == place]
    days = {each.day: places[each][fast] for each in later if fast in places[each]}
    return (max(days), _of_run(comparable({fast: days[max(days)]})[fast], None)) if days else None


def _in_words(row: Timed) -> str:
    """`434, 471 µs at 1, 200`, with the marks of a table's cells, and the share of the ceiling."""
    times = ", ".join(f"{us:,.0f}{row.marks.get(at, '')}" for at, us in row.us.items())
    share = f", {100 * row.share:.0f} % of the ceiling at {FIRST}" if row.share else ""
    return f"{times} µs at {', '.join(map(str, row.us))}{share}"


def _of_run(run: Record, above: Sequence[str] | None) -> Timed:
    found = {latency["position"]: latency for latency in plausible(run)}
    pair = found[FIRST]["comparison"] if above is not None and tuple(run["parent"]) == tuple(above) else None
    return Timed(
        us={at: microseconds(latency) for at, latency in found.items()},
        share=found[FIRST]["of_ceiling"],
        change=(pair["effect"], pair["low"], pair["high"]) if pair else None,
        marks={at: UNSTABLE for at, latency in found.items() if latency["verdict"] == "UNSTABLE"},
        id=run["id"],
        commit=_commit(run),
    )


def _commit(record: Record) -> str:
    git = record["provenance"].get("git") or {}
    return (git.get("commit") or "")[:7] + "+" * bool(git.get("dirty"))


def _of_generation(row: Record, ceiling: float) -> Timed:
    """Times out of the rates of a generation; ceiling: bytes a second."""
    rates = {int(head.rpartition(" ")[2]): rate for head, rate in row["found"].items() if head.startswith("tok/s at ")}
    us = {at: 1e6 / rate for at, rate in rates.items()}
    share = Model(**row["asked"]["model"]).bytes_per_token(FIRST) * rates[FIRST] / ceiling if FIRST in rates else None
    return Timed(us, share, None, dict.fromkeys(us, WHOLE), row["id"], _commit(row))


def _rivals(evidence: Evidence, place: Place) -> dict[str, Record]:
    """The newest rows of the engines at `place` whose every stage was validated."""
    return {
        row["asked"]["row"]: row
        for row in evidence.records
        if row.get("kind") == "row"
        and row["asked"].get("task") == RIVALS
        and (row["found"] or {}).get("validated") == BY
        and Place(row["asked"]["device"]["why"], row["asked"]["model"]["name"], row["time"][:10]) == place
    }


def _ceiling(run: Record) -> float:
    """Bytes a second of the probe that ran beside `run`."""
    latency = next(each for each in plausible(run) if each["position"] == FIRST)
    return latency["bandwidth"] / latency["of_ceiling"]
