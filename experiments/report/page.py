"""HTML page of the report: one file that loads nothing; every figure links to the record it comes from."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from common.display.table import cell
from experiments.report import answers, differences, overview, variants
from experiments.report.evidence import Evidence, Record
from experiments.report.figures import Figure
from experiments.report.table import Table

LINKS = 6  # records that a figure names
HERE = Path(__file__).resolve().parent
NO_TIME = (
    "There is no record of a GPU yet. What follows are exact counts, what the compiler made of each kernel, and "
    "predictions from them, each labelled as such. None of it is GPU time."
)


def page(evidence: Evidence, figures: Sequence[Figure]) -> str:
    """The whole document."""
    timed = any(row.get("latencies") for row in evidence.runs)
    sections = [
        "<h1>Decode megakernels: what pays, by how much, and why</h1>",
        '<nav><a href="#variants">Variants</a><a href="#figures">Figures</a><a href="#experiments">Experiments</a>'
        '<a href="#differences">Source and SASS</a><a href="#records">Records</a></nav>',
        "" if timed else f'<p class="banner">{NO_TIME}</p>',
        '<h2 id="variants">Variants</h2>',
        _table(overview.everything(evidence)),
        '<h2 id="figures">Figures</h2>',
        *(_figure(figure, number == 0) for number, figure in enumerate(figures)),
        "" if figures else "<p>No record has anything to draw yet.</p>",
        '<h2 id="experiments">Experiments</h2>',
        *(_experiment(name, evidence) for name in evidence.experiments),
        "" if evidence.experiments else "<p>No experiment has a record yet.</p>",
        '<h2 id="differences">Source and SASS of each variant against its parent</h2>',
        *(_variant(name, evidence) for name in evidence.names),
        '<h2 id="records">Records</h2>',
        _details("all-records", f"All {len(evidence.records)} records", _records(evidence)),
    ]
    css, script = ((HERE / name).read_text() for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>megakernel-lab: report</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, sections))
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _table(table: Table, link: bool = True) -> str:
    """A sortable table with its notes; the last column links each line to its record."""
    numeric = {name: all(_number(line.get(name)) for line in table.lines) for name in table.columns}
    long = {name: any(len(str(line.get(name))) > 40 for line in table.lines) for name in table.columns}
    kind = {name: "number" if numeric[name] else "text long" if long[name] else "text" for name in table.columns}
    heads = [f'<th class="{kind[name]}"><button>{escape(str(name))}</button></th>' for name in table.columns]
    keyed = link and any(table.keys)
    if keyed:
        heads.append("<th><button>record</button></th>")
    body = []
    for number, line in enumerate(table.lines):
        cells = [_cell(line.get(name), kind[name]) for name in table.columns]
        if keyed:
            cells.append(f"<td>{_link(table.keys[number])}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in table.notes)
    if not keyed and link and table.records:
        notes += f"<small>From {', '.join(map(_link, dict.fromkeys(table.records)))}.</small>"
    head, rows = "".join(heads), "\n".join(body)
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>'
        f"</div>\n{notes}"
    )


def _cell(value: Any, kind: str) -> str:
    raw = f' data-value="{value}"' if _number(value) and value is not None else ""
    return f'<td class="{kind}"{raw}>{escape(cell(value))}</td>'


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _link(record: str | None) -> str:
    return f'<a class="id" href="#{record}">{record[-10:]}</a>' if record else "-"


def _details(name: str, summary: str, content: str, is_open: bool = False) -> str:
    """A section that opens by a click, or by a link to anything in it; `summary` and `content` are HTML."""
    state = " open" if is_open else ""
    return f'<details id="{escape(name)}"{state}><summary>{summary}</summary>{content}</details>'


def _figure(figure: Figure, is_open: bool) -> str:
    drawing = figure.svg[figure.svg.index("<svg") :]
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{escape(figure.caption)}"', 1)
    more = len(figure.records) - LINKS
    origin = ", ".join(map(_link, figure.records[:LINKS])) + (f" and {more} more" if more > 0 else "")
    summary = f'{escape(figure.caption)} <span class="soft">{figure.basis}</span>'
    content = f'<figure><div class="plot">{drawing}</div><figcaption>From {origin}.</figcaption></figure>'
    return _details(f"figure-{figure.name}", summary, content, is_open)


def _experiment(name: str, evidence: Evidence) -> str:
    row = evidence.result(name) or {}
    summary = f'{escape(name)} <span class="soft">{escape(row.get("question", ""))}</span>'
    return _details(f"experiment-{name}", summary, _table(answers.experiment(name, evidence)))


def _variant(name: str, evidence: Evidence) -> str:
    entry = evidence.catalog.variants.get(name) or evidence.catalog.stacks[name]
    stack, parent = evidence.stack_of(name)
    row, base = evidence.built(name)
    against = "+".join(parent) or "baseline"
    told = [f"<p><b>Idea</b> {escape(entry.idea)}</p>"]
    if hypothesis := getattr(entry, "hypothesis", ""):
        told.append(f"<p><b>Hypothesis</b> {escape(hypothesis)}</p>")
    effect = _table(variants.against_parent(name, evidence))
    parts = [f'<div class="pair"><div>{"".join(told)}{effect}</div>']
    parts.append(f"<div>{_source(row, parent, evidence) if row else ''}</div></div>")
    if row and base and stack != parent and (found := differences.sass(row, base, variants.ARCH)):
        parts.append(f"<details><summary>SASS against {escape(against)}</summary>{_table(found)}</details>")
    summary = f'{escape(name)} <span class="soft">against {escape(against)}</span>' if stack else escape(name)
    return _details(f"variant-{name}", summary, "".join(parts))


def _source(row: Record, parent: Sequence[str], evidence: Evidence) -> str:
    found = differences.source(row, parent, evidence.catalog)
    changed = "" if found.current else '<p class="soft">The source has changed since this record was made.</p>'
    if not found.lines:
        return "<p>The baseline is what everything else is compared with.</p>"
    kinds = {"+": "add", "-": "del", "@": "at"}
    lines = "".join(f'<span class="{kinds.get(line[:1], "")}">{escape(line) or " "}</span>' for line in found.lines)
    return f"{changed}<pre><code>{lines}</code></pre>"


def _records(evidence: Evidence) -> str:
    heads = ("record", "kind", "what", "time", "device", "compiler", "model", "source", "commit", "command")
    lines = "\n".join(
        f'<tr id="{escape(row["id"])}">' + "".join(f"<td>{text}</td>" for text in _origin(row)) + "</tr>"
        for row in evidence.records
    )
    if not lines:
        return "<p>There are no records yet.</p>"
    head = "".join(f"<th><button>{name}</button></th>" for name in heads)
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )


def _origin(row: Mapping[str, Any]) -> list[str]:
    """Where one record comes from, as cells of HTML."""
    origin = row["provenance"]
    device, model = row.get("device") or {}, row.get("model") or {}
    device = device if isinstance(device, dict) else {"device": device}
    gpu = (origin.get("gpu") or {}).get("name")
    texts = [
        row["kind"],
        row.get("variant", "-"),
        row["time"][:19],
        gpu or f"{device.get('device', '-')}, {origin.get('cpu') or '-'}",
        device.get("compiler", "-"),
        model.get("name", "-") if isinstance(model, dict) else model,
        (row.get("source_sha") or "-")[:12],
        overview.commit(row),
    ]
    command = f"<code>{escape(origin.get('command') or '-')}</code>"
    return [
        f'<span class="id">{escape(row["id"])}</span>',
        *(escape(str(text)).replace("+", "+<wbr>") for text in texts),
        command,
    ]
