"""Figures of records of kind `run`, and their words: labels, sums of counts, times, errors.

A stack that is not recorded yet has the same fields, without those of a run's conditions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from common.record.measurement import IMPLAUSIBLE
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, knob_values, knob_words

Record = Mapping[str, Any]
SETTINGS = {  # by which records of one label differ, and their places
    "threads": ("threads",),
    "blocks": ("blocks",),
    "model": ("model", "name"),
    "device": ("device", "device"),
    "gpu": ("device", "gpu"),
    "seed": ("seed",),
    "weights": ("weights", "source"),
    "record": ("id",),
}


def label(record: Record, own: bool = True) -> str:
    """Name of a record in a table: `warp_split ratio=2:6`, with the knobs that are not at their defaults.

    own: with all knobs of the variant that gives the name.
    """
    catalog, name = read_catalog(), record["variant"]
    preset = catalog.stacks[name].knobs if name in catalog.stacks else {}
    words = [name]
    for variant, values in knob_values(catalog, record.get("stack") or (), record.get("knobs") or {}).items():
        knobs = catalog.variants[variant].knobs if variant in catalog.variants else ()
        usual = {knob.name: preset.get(knob.name, knob.default) for knob in knobs}
        shown = {knob: value for knob, value in values.items() if (own and variant == name) or value != usual.get(knob)}
        words += [word for word in knob_words(shown) if word not in words]
    return " ".join(words)


def label_of(stack: Stack, own: bool = True) -> str:
    """`label` of a stack that has no record yet."""
    return label({"variant": stack.name, "stack": stack.variants, "knobs": stack.knobs}, own)


def labels(records: Sequence[Record]) -> list[str]:
    """A different name for each record: its label, with the settings in which records of one label differ.

    Equal repetitions of one run differ in the record's id.
    """
    names = [label(record) for record in records]
    for setting, place in SETTINGS.items():
        for name in {name for name in names if names.count(name) > 1}:
            same = [at for at, other in enumerate(names) if other == name]
            values = [_at(records[at], place) for at in same]
            if len({*values} - {None}) > 1:  # the grid of a stack that did not run is unknown
                for at, value in zip(same, values, strict=True):
                    names[at] = f"{name} {setting}={value}"
    return names


def _at(record: Any, place: Sequence[str]) -> Any:
    for key in place:
        record = record.get(key)
    return record


def totals(counts: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Every count, summed over the stages."""
    sums = Counter[str]()
    for stage in counts.values():
        sums.update(stage)
    return sums


def count(record: Record, *fields: str) -> int | None:
    """Sum of some counts of a step; None for a record without counts."""
    return sum(totals(record["counts"])[field] for field in fields) if record["counts"] else None


def times(record: Record) -> list[Record]:
    """Times at each position, then that of a whole generation."""
    return [*record["latencies"], *([record["generation"]] if record["generation"] else [])]


def plausible(record: Record) -> list[Record]:
    """The latencies of a run that may stand in a table: none is faster than the memory's bandwidth allows."""
    return [timed for timed in record["latencies"] if timed["verdict"] != IMPLAUSIBLE]


def microseconds(timed: Record) -> float:
    """Median of a token."""
    return 1e6 * timed["seconds"]["median"]


def error(record: Record) -> str | None:
    """`3.2e-07 / 4.0e-06`: the largest error and its tolerance, if it is known; None where nothing was compared."""
    if not record["verdict"]:
        return None
    found, share = (record["verdict"]["worst"][name] for name in ("error", "ratio"))
    allowed = f" / {found / share:.1e}" if isinstance(share, float) and share > 0 else ""
    return (f"{found:.1e}" if isinstance(found, float) else str(found)) + allowed


def finished(record: Record) -> str:
    """One line for a stack that has just ended: verdict and main figures."""
    if record["status"] != "PASSED":
        return f"{label(record)}: {record['status']} {record['reason']}"
    figures = [f"max error {error(record)} allowed"] if record["verdict"] else []
    barriers = count(record, "grid_barriers")
    figures += [] if barriers is None else [f"{barriers} grid barriers a token"]
    figures += [f"{microseconds(timed):.1f} us a step at {timed['position']}" for timed in record["latencies"][:1]]
    return f"{label(record)}: PASSED, {', '.join(figures)}"
