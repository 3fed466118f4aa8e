"""The report: blocks that only records can change, figures and a page that come out the same and load nothing."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from common.catalog import ROOT, read_catalog
from common.counters import FIELDS
from common.errors import LabError
from experiments.report import blocks, tables
from experiments.report.__main__ import FILES, RESULTS, main, stale
from experiments.report.evidence import Evidence, read, totals
from experiments.report.figures import all_figures
from experiments.report.page import page
from experiments.report.tables import Table

MODEL = {
    "name": "tiny", "hidden": 64, "intermediate": 160, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32,
    "vocab": 503, "positions": 64, "rope_theta": 1e6, "rms_eps": 1e-6, "tied": True,
}  # fmt: skip
ORIGIN = {"git": {"commit": "a" * 40, "dirty": False}, "cpu": "a processor", "gpu": None, "command": "python -m x <y>"}


def run(variant: str, stack: list[str], barriers: int, when: int = 0, **more) -> dict:
    """A record of kind `run`, by hand: 1,000 bytes of weights in 64-bit loads, `barriers` grid barriers."""
    counts = {"qkv": {"grid_barriers": barriers, "weights_64bit": 1000, "activations_32bit": 40}}
    sm_90 = {
        "registers": 40 + barriers,
        "spill_bytes": 0,
        "shared": 512,
        "histogram": {"BAR.SYNC": barriers, "FFMA": 9},
    }
    return {
        "id": f"run-{variant}-{when:04}", "kind": "run", "time": f"2026-01-01T00:00:{when:02}+00:00",
        "variant": variant, "stack": stack, "parent": [], "knobs": {name: {} for name in stack},
        "model": MODEL, "threads": 256, "blocks": 8,
        "status": "PASSED", "counts": counts, "resources": {"sm_90": sm_90}, "latencies": [], "source_sha": "0" * 64,
        "device": {"device": "host", "compiler": "g++ 12"}, "provenance": ORIGIN, **more,
    }  # fmt: skip


def timed(variant: str, stack: list[str]) -> dict:
    """The same on a GPU: 500 us at position 1, 10 % faster than the parent."""
    pair = {"effect": -0.1, "low": -0.12, "high": -0.09, "verdict": "FASTER"}
    latency = {"position": 1, "seconds": {"median": 5e-4, "low": 4.9e-4, "high": 5.1e-4}, "comparison": pair}
    latency |= {"verdict": "FASTER", "bandwidth": 1e12, "of_ceiling": 0.5}
    device = {"device": "cuda", "gpu": "A GPU", "compiler": "NVRTC 13"}
    return run(variant, stack, 0, 9, counts=None, resources={}, device=device, latencies=[latency])


def outcome(name: str, basis: str, table: list[dict], when: int = 5) -> dict:
    return {
        "id": f"{name}-{basis}", "kind": name, "time": f"2026-01-01T00:01:{when:02}+00:00", "question": f"why {name}?",
        "basis": basis, "columns": list(table[0]), "table": table, "notes": ["Read it so."], "needs_gpu": "all of it",
        "model": MODEL, "provenance": ORIGIN,
    }  # fmt: skip


def evidence(*records: dict) -> Evidence:
    return Evidence(read_catalog(), records)


HOST = (
    run("baseline", [], 10),
    run("redundant_rmsnorm", ["redundant_rmsnorm"], 99),
    run("redundant_rmsnorm", ["redundant_rmsnorm"], 6, when=1),
)


def line(table: Table, name: str) -> dict:
    return next(line for line in table.lines if name in line.values())


def test_generated_blocks_are_what_the_records_give():
    records = sorted((ROOT / RESULTS).glob("*.jsonl"))
    found = stale(read(records, read_catalog()), ROOT)
    assert not found, f"{found}: python -m experiments.report makes them anew"


def test_every_marker_in_the_documents_is_known_and_closed():
    for file in FILES:
        for name in blocks.names((ROOT / file).read_text()):
            assert tables.make(name, evidence()).columns, name


def test_devlog_has_an_entry_for_every_variant():
    names = blocks.names((ROOT / "DEVLOG.md").read_text())
    assert {f"variant:{name}" for name in evidence().names} <= set(names)


def test_without_records_tables_say_so_and_hold_no_figure():
    for name in ("variants", "records", "variant:vec128", "experiment:roofline"):
        table = tables.make(name, evidence())
        figures = [value for row in table.lines for value in row.values() if isinstance(value, int | float)]
        assert not figures, (name, figures)
    assert tables.OPEN in blocks.render(tables.make("variants", evidence()))


def test_the_newest_record_counts_and_is_compared_with_its_parent():
    row = line(tables.variants(evidence(*HOST)), "redundant_rmsnorm")
    assert row["grid barriers"] == "6 (-4)"
    assert row["registers, spills (sm_90)"] == "46, 0"
    assert row["time against parent"] == tables.OPEN
    assert line(tables.against_parent("redundant_rmsnorm", evidence(*HOST)), "grid barriers") == {
        "per token": "grid barriers", "parent": 10, "redundant_rmsnorm": 6, "change": "-40.0 %",
    }  # fmt: skip


def test_counts_of_other_knobs_or_another_grid_are_not_compared():
    other = run("redundant_rmsnorm", ["redundant_rmsnorm"], 6, when=2, blocks=82)
    assert line(tables.variants(evidence(HOST[0], other)), "redundant_rmsnorm")["grid barriers"] == "6"
    knobbed = run("vec128", ["vec128"], 6, knobs={"vec128": {"l1": "no_allocate"}})
    assert line(tables.variants(evidence(HOST[0], knobbed)), "vec128")["validation"] == tables.NOTHING


def test_gpu_time_appears_with_its_interval_where_there_is_some():
    both = evidence(*HOST, timed("redundant_rmsnorm", ["redundant_rmsnorm"]))
    shown = line(tables.variants(both), "redundant_rmsnorm")["time against parent"]
    assert shown == "A GPU, tiny: 500.0 us at 1: FASTER -10.0 % [-12.0, -9.0]"
    (figure,) = (each for each in all_figures(both) if each.name == "ablation")
    assert figure.basis == "measured"


def test_what_was_measured_goes_before_a_newer_prediction():
    old = outcome("roofline", "measured", [{"variant": "baseline", "GB/s": 1.0}], when=1)
    new = outcome("roofline", "predicted", [{"variant": "baseline", "GB/s": 2.0}], when=2)
    text = blocks.render(tables.make("experiment:roofline", evidence(old, new)))
    assert "| baseline | 1 |" in text
    assert "Measured on a GPU" in text
    assert "Needs a GPU: all of it" in text


def test_sums_of_counts_are_worked_out_by_hand():
    sums = totals({"qkv": {"weights_128bit": 160, "weights_32bit": 8, "shared_64bit": 800}, "down": {"kv_64bit": 16}})
    assert (sums["load_instructions"], sums["weights"], sums["activations"]) == (10 + 2 + 2, 168, 0)
    assert {"shared_64bit", "weights_32bit"} <= set(FIELDS)


TEXT = "a\n<!-- generated:one -->\nold\n<!-- /generated -->\nb\n<!-- generated:two -->\n<!-- /generated -->\n"


def make(name: str) -> Table:
    return Table(["name", "n"], [{"name": name, "n": 1234}], ["A note."])


def test_a_block_is_replaced_and_the_rest_is_kept():
    filled = blocks.fill(TEXT, "x.md", make)
    assert filled == blocks.fill(filled, "x.md", make)
    assert "| one | 1,234 |\n\nA note.\n\n<!-- /generated -->\nb\n" in filled
    assert "old" not in filled
    assert blocks.differing(filled, "x.md", make) == []
    assert blocks.differing(filled.replace("1,234", "1,235", 1), "x.md", make) == ["one"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("<!-- generated:one -->\n", "no end"), (TEXT.replace("old", "<!-- generated:in -->"), "begins inside another")],
)
def test_a_block_that_is_not_closed_is_refused(text, said):
    with pytest.raises(LabError, match=said):
        blocks.fill(text, "x.md", make)


def test_an_unknown_block_is_refused():
    with pytest.raises(LabError, match="no generated block typo"):
        tables.make("typo", evidence())
    with pytest.raises(LabError, match="no variant typo"):
        tables.make("variant:typo", evidence())


def test_the_check_names_the_edited_block(tmp_path, monkeypatch, capfd):
    (tmp_path / "README.md").write_text("<!-- generated:variants -->\nedited\n<!-- /generated -->\n")
    assert stale(evidence(), tmp_path) == ["README.md: block variants"]
    assert main(["check=true", "records=[missing.jsonl]"]) == 2
    assert capfd.readouterr().err.startswith("error: missing.jsonl is not there; ")


class Reader(HTMLParser):
    """What a page has: ids, links and everything that would be loaded; and whether its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.ids, self.links, self.loads, self.open = set(), set(), [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        if tag == "a":
            self.links.add(found["href"])
        elif tag in ("script", "link", "img", "iframe") or "xlink:href" in found:
            self.loads += [found[key] for key in ("src", "href", "xlink:href") if key in found]
        if tag not in ("meta", "use", "path", "img", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids.add(dict(attrs).get("id"))

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


RATIOS = [{"producers:consumers": "0:8", "average tok/s": 500.0, "published average": 509.9}]
FULL = (*HOST, outcome("ratios", "predicted", RATIOS))


def test_the_page_needs_nothing_from_outside_and_names_the_origin_of_its_figures():
    some = evidence(*FULL)
    text = page(some, all_figures(some))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert all(each.startswith("#") for each in (*reader.links, *reader.loads)), "only links within the page"
    assert {link[1:] for link in reader.links} <= reader.ids
    assert {row["id"] for row in FULL} <= reader.ids
    assert not re.search(r"@import|url\((?!#)", text)
    assert "None of it is GPU time" in text
    assert "python -m x &lt;y&gt;" in text
    assert "struct RedundantRmsnorm" in text, "the source difference"
    assert text == page(some, all_figures(some))


def test_figures_are_svg_with_their_labels_and_come_out_the_same():
    first, second = all_figures(evidence(*FULL)), all_figures(evidence(*FULL))
    assert [figure.name for figure in first] == ["counts", "ratios"]
    assert [figure.basis for figure in first] == ["counted", "predicted"]
    for figure, again in zip(first, second, strict=True):
        assert figure.svg == again.svg
        words = {node.text for node in ElementTree.fromstring(figure.svg).iter() if node.text}
        wanted = {"counts": {"redundant_rmsnorm", "grid barriers"}, "ratios": {"0:8", "predicted here"}}
        assert wanted[figure.name] <= words


def test_what_is_committed_parses():
    for path in sorted((ROOT / RESULTS).glob("figures/*.svg")):
        assert ElementTree.parse(path).getroot().tag.endswith("svg"), path
    if (ROOT / RESULTS / "report.html").exists():
        reader = Reader()
        reader.feed((ROOT / RESULTS / "report.html").read_text())
        assert reader.open == []
    for path in (ROOT / RESULTS).glob("*.jsonl"):
        assert all(json.loads(line)["id"] for line in path.read_text().splitlines() if line.strip()), path


def test_every_entry_of_the_journal_is_whole():
    """Why it was asked, what was changed, a table, how to read it, the verdict, and what was learned."""
    entries = re.split(r"^## (?=\d+\. )", (ROOT / "DEVLOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    for entry in entries:
        for part in ("**Why.**", "**What.**", "<!-- generated:", "**Reading.**", "**Verdict.**", "**Learned.**"):
            assert part in entry, (entry.partition("\n")[0], part)
