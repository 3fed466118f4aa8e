"""Tables over all variants: the gallery of docs/, the page's wide table, published rates, origins of records."""

from common.model.shapes import Model
from experiments.prediction import gpus
from experiments.prediction.published import FIGURES, error
from experiments.report import forecast
from experiments.report.evidence import Evidence, Record, model_of, totals
from experiments.report.forecast import about_predictions, time_of
from experiments.report.table import Table
from experiments.report.variants import ARCH, COUNTED, INSPECT, change

NOTHING = "no record yet"
PASSED = "PASSED"


def gallery(evidence: Evidence) -> Table:
    """Five narrow columns for a page that a phone shows: what each recorded variant is, and what it changes.

    A variant without records is left out, so that two new files leave the committed page as it is.
    """
    columns = ["variant", "idea", "grid barriers", "loads", "time against parent"]
    lines, keys, used = [], [], []
    for name in evidence.recorded:
        run, (row, base) = evidence.validated(name), evidence.counted(name)
        sums, before = (totals(each["counts"]) if each else {} for each in (row, base))
        cells = [f"[{name}]({_file(name, evidence)})", _idea(name, evidence)]
        cells += [change("grid_barriers", sums, before), change("load_instructions", sums, before)]
        lines.append(dict(zip(columns, [*cells, time_of(name, evidence)], strict=True)))
        keys.append((row or run or {}).get("id"))
        used += [row, run]
    notes = [
        _validation(evidence),
        f"{COUNTED} In brackets the change against the parent.",
        *about_predictions(evidence),
    ]
    records = [row["id"] for row in (*used, evidence.result("ablation")) if row]
    return Table(columns, lines, notes, records, keys)


def everything(evidence: Evidence) -> Table:
    """Every variant and named stack: what was published, what is counted, and what time says."""
    lines, keys, used = [], [], []
    for name in evidence.names:
        run, (row, base), (built, _) = evidence.validated(name), evidence.counted(name), evidence.built(name)
        sums, before = (totals(each["counts"]) if each else {} for each in (row, base))
        found = built["resources"].get(ARCH) if built else None
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
            }
        )
        keys.append((row or run or {}).get("id"))
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
    notes += about_predictions(evidence)
    records = [row["id"] for rows in used for row in (*rows, evidence.result("ablation")) if row]
    return Table(list(lines[0]), lines, notes, records, keys)


def published(evidence: Evidence) -> Table:
    """The published rates at position 1, with author, source, share of peak bandwidth, and what is predicted here."""
    counted, predict = evidence.counted("baseline")[0], evidence.result("predict")
    rates = {(row["gpu"], row["stack"]): row["predicted tok/s"] for row in (predict or {"table": []})["table"][::-1]}
    lines = []
    for figure in (each for each in FIGURES if each.position == 1):
        gpu, share = gpus.read(figure.gpu), None
        if counted:
            share = 100 * figure.rate * Model(**counted["model"]).bytes_per_token(1) / 1e9 / gpu.bandwidth_gbps
        lines.append(
            {
                "published": f"[{figure.source.name}]({figure.source.url}) by {figure.source.author}: {figure.build}",
                "on": figure.source.machine,
                "tok/s": figure.rate,
                "of peak bandwidth": None if share is None else f"{share:.0f} %",
                "predicted for": figure.stack,
                "predicted tok/s": _compared(rates.get((figure.gpu, figure.stack)), figure.rate),
            }
        )
    note = (
        "At position 1, as their authors give them; no clocks are given. The share of the peak is computed here; "
        "predicted is not measured."
    )
    return Table(list(lines[0]), lines, [note], [row["id"] for row in (counted, predict) if row])


def planned(evidence: Evidence) -> Table:
    """The steps of conf/design/ from a stack of this lab on: microseconds with their intervals, and the rate."""
    found = forecast.planned(evidence)
    lines: list[dict[str, str]] = []
    for step in next(iter(found.values()), {}):
        line = {"step": step}
        for gpu, times in found.items():
            us, low, high = (times[step][f"{name} us"] for name in ("predicted", "low", "high"))
            line |= {f"us, {gpu}": forecast.interval(us, low, high), f"tok/s, {gpu}": f"{1e6 / us:,.0f}"}
        lines.append(line)
    note = (
        "Predicted, not measured, position 1; each step on top of those above it. Steps with a + are a design: what "
        "they change is declared in conf/design/, and nothing of it is counted."
    )
    columns = list(lines[0]) if lines else ["step"]
    row = evidence.result("predict")
    return Table(columns, lines, [note] if lines else [NOTHING], [row["id"]] if lines and row else [])


def origins(evidence: Evidence) -> Table:
    """Where the records come from: one line per machine, model and commit."""
    groups: dict[tuple, list[Record]] = {}
    for row in evidence.records:
        origin = row["provenance"]
        gpu = (origin.get("gpu") or {}).get("name")
        device = row.get("device") or {}
        device = device.get("device", "-") if isinstance(device, dict) else str(device)
        groups.setdefault((gpu or origin.get("cpu"), device, model_of(row) or "-", commit(row)), []).append(row)
    columns = ["machine", "device", "model", "commit", "records", "newest"]
    lines = [dict(zip(columns, (*key, len(rows), rows[-1]["time"][:10]), strict=True)) for key, rows in groups.items()]
    notes = ["A + after a commit: the code differed from it."] if lines else ["There are no records yet."]
    return Table(columns, lines, notes, [row["id"] for row in evidence.records])


def commit(row: Record) -> str:
    """Twelve digits of the commit a record was made at; with a + where the code differed from it."""
    git = row["provenance"].get("git") or {}
    return f"{(git.get('commit') or 'unknown')[:12]}{'+' if git.get('dirty') else ''}"


def _compared(rate: float | None, known: float) -> str | None:
    """`629 (+18 %)`: a predicted rate, and how far it is off the published one."""
    return None if rate is None else f"{rate:,.0f} ({error(rate, known):+.0f} %)"


def _validation(evidence: Evidence) -> str:
    """`All 16 PASSED validation.`, or which did not, of those that have records."""
    found = {name: evidence.validated(name) for name in evidence.recorded}
    others = [f"{name} {run['status'] if run else NOTHING}" for name, run in found.items()]
    others = [text for text in others if not text.endswith(f" {PASSED}")]
    if not found:
        return "There are no records yet."
    if not others:
        return f"All {len(found)} {PASSED} validation."
    return f"{len(found) - len(others)} of {len(found)} {PASSED} validation; not: {', '.join(others)}."


def _file(name: str, evidence: Evidence) -> str:
    return f"variants/{name}.cu" if name in evidence.catalog.variants else f"conf/variant/{name}.yaml"


def _idea(name: str, evidence: Evidence) -> str:
    """The idea up to its first colon or semicolon; after that come details."""
    idea = evidence.entry(name).idea
    return min((idea.partition(mark)[0] for mark in ":;"), key=len)
