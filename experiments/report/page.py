"""HTML page of the report: one file that loads nothing; every figure links to the record it comes from."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from common.display.table import Cell, Table, html
from experiments.report import answers, overview, variants
from experiments.report.evidence import Evidence, Record
from experiments.report.figures import Figure

LINKS = 6  # records that a figure names
HERE = Path(__file__).resolve().parent
NO_TIME = (
    "There is no record of a GPU yet. What follows are exact counts, and what the compiler made of each kernel. "
    "None of it is GPU time."
)
LINES = {"+": "add", "-": "del", "@": "at"}  # first letter of a line of a difference: its class


def page(evidence: Evidence, figures: Sequence[Figure]) -> str:
    """The whole document."""
    timed = any(row.get("latencies") for row in evidence.runs)
    drawn = [_figure(figure, number == 0) for number, figure in enumerate(figures)]
    answered = [_experiment(name, evidence) for name in evidence.experiments]
    records = _anchored(_table(Table.of([_origin(row) for row in evidence.records])))
    return Template((HERE / "page.html").read_text()).substitute(
        style=(HERE / "page.css").read_text(),
        script=(HERE / "page.js").read_text(),
        banner="" if timed else f'<p class="banner">{NO_TIME}</p>',
        variants=_table(overview.everything(evidence)),
        figures="\n".join(drawn) or "<p>No record has anything to draw yet.</p>",
        experiments="\n".join(answered) or "<p>No experiment has a record yet.</p>",
        differences="\n".join(_variant(name, evidence) for name in evidence.names),
        records=_details("all-records", f"All {len(evidence.records)} records", records),
    )


def _table(table: Table, records: Iterable[Record | None] = ()) -> str:
    """A table that scrolls by itself, its notes, and links to the records it is made from."""
    grid, notes = html(replace(table, notes=())), html(replace(table, rows=()))
    return f'<div class="scroll">{grid}</div>\n{notes}{_links(row["id"] for row in records if row)}'


def _links(records: Iterable[str], most: int | None = None) -> str:
    names = list(dict.fromkeys(records))
    links = [f'<a class="id" href="#{name}">{name[-10:]}</a>' for name in names[:most]]
    more = f" and {len(names) - len(links)} more" if len(links) < len(names) else ""
    return f"<small>From {', '.join(links)}{more}.</small>" if links else ""


def _details(name: str, summary: str, content: str, is_open: bool = False) -> str:
    """A section that opens by a click, or by a link to anything in it; `summary` and `content` are HTML."""
    state = " open" if is_open else ""
    return f'<details id="{escape(name)}"{state}><summary>{summary}</summary>{content}</details>'


def _titled(name: str, about: str) -> str:
    return f'{escape(name)} <span class="soft">{escape(about)}</span>'


def _figure(figure: Figure, is_open: bool) -> str:
    drawing = figure.svg[figure.svg.index("<svg") :]
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{escape(figure.caption)}"', 1)
    content = f"<figure>{drawing}<figcaption>{_links(figure.records, LINKS)}</figcaption></figure>"
    return _details(f"figure-{figure.name}", _titled(figure.caption, figure.basis), content, is_open)


def _experiment(name: str, evidence: Evidence) -> str:
    row = evidence.result(name)
    content = _table(answers.experiment(name, evidence), [row])
    return _details(f"experiment-{name}", _titled(name, row["question"] if row else ""), content)


def _variant(name: str, evidence: Evidence) -> str:
    entry, (stack, parent) = evidence.entry(name), evidence.stack_of(name)
    row, base = evidence.built(name)
    against = "+".join(parent) or "baseline"
    claims = {"Idea": entry.idea, "Hypothesis": getattr(entry, "hypothesis", "")}
    about = "".join(f"<p><b>{title}</b> {escape(text)}</p>" for title, text in claims.items() if text)
    used = (*evidence.counted(name), row, base, *evidence.timed(name))
    effect = _table(variants.against_parent(name, evidence), used)
    source = _source(row, parent, evidence) if row else ""
    content = f'<div class="pair"><div>{about}{effect}</div><div>{source}</div></div>'
    if row and base and stack != parent and (found := variants.sass_difference(row, base)):
        content += f"<details><summary>SASS against {escape(against)}</summary>{_table(found, (row, base))}</details>"
    return _details(f"variant-{name}", _titled(name, f"against {against}" if stack else ""), content)


def _source(row: Record, parent: Sequence[str], evidence: Evidence) -> str:
    found, is_current = variants.source_difference(row, parent, evidence)
    if not found:
        return "<p>The baseline is what everything else is compared with.</p>"
    changed = "" if is_current else '<p class="soft">The source has changed since this record was made.</p>'
    lines = "".join(f'<span class="{LINES.get(line[:1], "")}">{escape(line) or " "}</span>' for line in found)
    return f"{changed}<pre><code>{lines}</code></pre>"


def _origin(row: Mapping[str, Any]) -> dict[str, Any]:
    """Origin of one record, as a line of the table of records; its id links to itself."""
    origin = row["provenance"]
    device, model, git = row.get("device") or {}, row.get("model") or {}, origin.get("git") or {}
    device = device if isinstance(device, dict) else {"device": device}
    gpu = (origin.get("gpu") or {}).get("name")
    return {
        "record": Cell(row["id"], link=f"#{row['id']}"),
        "kind": row["kind"],
        "what": row.get("variant"),
        "time": row["time"][:19],
        "device": gpu or f"{device.get('device', '-')}, {origin.get('cpu') or '-'}",
        "compiler": device.get("compiler"),
        "model": model.get("name") if isinstance(model, dict) else model,
        "source": (row.get("source_sha") or "-")[:12],
        # A + after a commit: the code differed from it.
        "commit": f"{(git.get('commit') or 'unknown')[:12]}{'+' if git.get('dirty') else ''}",
        "command": origin.get("command"),
    }


def _anchored(table: str) -> str:
    """`table` with each self-link turned into its anchor."""
    return re.sub(r'<a href="#([^"]+)">\1</a>', r'<span class="id" id="\1">\1</span>', table)
