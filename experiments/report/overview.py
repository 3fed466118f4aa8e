"""Tables over all variants: the gallery of docs/, and the page's wide table."""

from common.display.table import Cell, Table
from experiments.report.evidence import NOTHING, Evidence, totals
from experiments.report.timed import time_of
from experiments.report.variants import ARCH, COUNTED, INSPECT, change

PASSED = "PASSED"
ALONE = "Each on its own parent: in another stack, as in README's, the same variant has other counts."


def gallery(evidence: Evidence) -> Table:
    """Five narrow columns for a page that a phone shows: the idea of each recorded variant, and its changes.

    A variant without records is left out, so that two new files leave the committed page as it is.
    """
    lines = []
    for name in evidence.recorded:
        sums, before = (totals(row["counts"]) if row else {} for row in evidence.counted(name))
        file = f"variants/{name}.cu" if name in evidence.catalog.variants else f"conf/variant/{name}.yaml"
        idea = evidence.entry(name).idea
        lines.append(
            {
                "variant": Cell(name, link=f"../{file}"),  # from docs/
                "idea": min((idea.partition(mark)[0] for mark in ":;"), key=len),  # after these come details
                "grid barriers": change("grid_barriers", sums, before),
                "loads": change("load_instructions", sums, before),
                "time against parent": time_of(name, evidence),
            }
        )
    about = f"{COUNTED} {ALONE} In brackets the change against the parent."
    return Table.of(lines, notes=[_validation(evidence), about])


def everything(evidence: Evidence) -> Table:
    """Every variant and named stack: published, counted and measured."""
    lines, used = [], []
    for name in evidence.names:
        run, (row, base), (built, _) = evidence.validated(name), evidence.counted(name), evidence.built(name)
        sums, before = (totals(each["counts"]) if each else {} for each in (row, base))
        found = built["resources"].get(ARCH) if built else None
        newest = row or run
        lines.append(
            {
                "variant": name,
                "validation": run["status"] if run else NOTHING,
                "grid barriers": change("grid_barriers", sums, before),
                "load instructions": change("load_instructions", sums, before),
                "activation bytes": change("activations", sums, before),
                f"registers, spills ({ARCH})": f"{found['registers']}, {found['spill_bytes']}" if found else "-",
                "time against parent": time_of(name, evidence),
                "published": evidence.entry(name).published or "-",
                "record": record_link(newest["id"]) if newest else None,
            }
        )
        used.append((row, built, run))
    counts, builds, runs = (
        ", ".join(sorted({row["model"]["name"] for row in rows if row})) or "none" for rows in zip(*used, strict=True)
    )
    notes = [
        f"{COUNTED} In brackets the change against the variant's parent; load instructions are those of all threads.",
        f"Models: {runs} for the validation, {counts} for the counts, {builds} for registers and bytes spilled.",
    ]
    if missing := [name for name, (_, build, _) in zip(evidence.names, used, strict=True) if not build]:
        notes.append(f"No registers of this model yet for {', '.join(missing)}: {INSPECT}.")
    return Table.of(lines, notes=notes)


def record_link(record: str) -> Cell:
    """A link to a record on the page, by the end of its id."""
    return Cell(record[-10:], link=f"#{record}")


def _validation(evidence: Evidence) -> str:
    """`All 16 PASSED validation.`, or which recorded ones did not."""
    runs = {name: evidence.validated(name) for name in evidence.recorded}
    statuses = {name: run["status"] if run else NOTHING for name, run in runs.items()}
    others = [f"{name} {status}" for name, status in statuses.items() if status != PASSED]
    if not statuses:
        return "There are no records yet."
    if not others:
        return f"All {len(statuses)} {PASSED} validation."
    return f"{len(statuses) - len(others)} of {len(statuses)} {PASSED} validation; not: {', '.join(others)}."
