"""Report: generated blocks that only records and sources can change."""

import re
from functools import partial
from pathlib import Path

import pytest
from made_records import MODEL, UNTIMED, evidence, line, lines, result, run
from omegaconf import DictConfig

from common import ROOT
from common.devices.counters import FIELDS
from common.display.table import Table, markdown
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.report import answers, blocks, ladder, overview, variants
from experiments.report.__main__ import RESULTS, main, pages, report, stale
from experiments.report.evidence import NOTHING, read, totals
from experiments.report.timed import OPEN


def test_generated_blocks_match_the_records():
    records = sorted((ROOT / RESULTS).glob("*.jsonl"))
    found = stale(read(records, read_catalog()), ROOT)
    assert not found, f"{found}: run python -m experiments.report"


def test_every_marker_in_the_documents_is_known_and_closed():
    for file in pages(ROOT):
        assert blocks.fill((ROOT / file).read_text(), str(file), partial(blocks.make, evidence=evidence()))


def test_without_records_tables_have_a_note_and_no_numbers():
    none = evidence()
    for table in (
        *(overview.gallery(none), ladder.summary(none), answers.experiment("roofline", none)),
        answers.digest("rivals", none),
    ):
        assert not [value for row in table.rows for value in row if isinstance(value, int | float)], table
    assert not overview.gallery(none).rows
    assert OPEN in blocks.make("variants", evidence(*UNTIMED))
    assert "no record" in blocks.make("sentence:mutants", none)


def test_the_newest_record_is_used_and_compared_with_its_parent():
    row = line(overview.everything(evidence(*UNTIMED)), "redundant_rmsnorm")
    assert row["grid barriers"] == "6 (-4)"
    assert row["registers, spills (sm_90)"] == "46, 0"
    assert row["time against parent"] == OPEN
    assert line(variants.against_parent("redundant_rmsnorm", evidence(*UNTIMED)), "grid barriers") == {
        "per token": "grid barriers", "parent": 10, "redundant_rmsnorm": 6, "change": "-40.0 %",
    }  # fmt: skip


def test_counts_of_other_knobs_or_another_grid_are_not_compared():
    other = run("redundant_rmsnorm", ["redundant_rmsnorm"], 6, when=2, blocks=82)
    assert line(overview.everything(evidence(UNTIMED[0], other)), "redundant_rmsnorm")["grid barriers"] == "6"
    knobbed = run("vec128", ["vec128"], 6, knobs={"vec128": {"l1": "no_allocate"}})
    assert line(overview.everything(evidence(UNTIMED[0], knobbed)), "vec128")["validation"] == NOTHING


def test_registers_and_counts_of_different_shapes_are_never_in_one_row():
    """Counts of a large model, runs of a small one: its registers are not shown until the large one was compiled."""
    large = MODEL | {"name": "large", "layers": 28}
    counts = tuple(row | {"kind": "count", "model": large | {"positions": 8}, "resources": {}} for row in UNTIMED)
    for shown in (overview.everything, lambda rows: variants.against_parent("redundant_rmsnorm", rows)):
        text = markdown(shown(evidence(*UNTIMED, *counts)))
        assert "46" not in text
        assert "No registers of this model yet" in text
    build = {"kind": "build", "model": large, "counts": None}
    resources = {"sm_90": UNTIMED[0]["resources"]["sm_90"] | {"registers": 171}}
    made = tuple(row | build | {"id": f"b{at}", "resources": resources} for at, row in enumerate(UNTIMED[:2]))
    row = line(overview.everything(evidence(*UNTIMED, *counts, *made)), "redundant_rmsnorm")
    assert row["registers, spills (sm_90)"] == "171, 0"
    table = variants.against_parent("redundant_rmsnorm", evidence(*UNTIMED, *counts, *made))
    assert line(table, "registers, sm_90")["parent"] == 171
    assert "the same model" in table.notes[0]


def test_the_gallery_is_narrow_and_links_to_each_source():
    table = overview.gallery(evidence(*UNTIMED))
    assert len(table.columns) <= 5
    for row in lines(table):
        assert (ROOT / "docs" / row["variant"].link).is_file()
    assert "| [redundant_rmsnorm](../variants/redundant_rmsnorm.cu) |" in markdown(table)
    assert line(table, "redundant_rmsnorm")["grid barriers"] == "6 (-4)"
    assert len(table.rows) == 2, "a variant without records is left out: two new files change no committed page"
    assert table.notes[0] == "All 2 PASSED validation."
    failed = run("smem_cache", ["smem_cache"], 6, status="NUMERIC_MISMATCH")
    assert "smem_cache NUMERIC_MISMATCH" in overview.gallery(evidence(*UNTIMED, failed)).notes[0]


def test_links_of_pages_lead_to_files():
    for page in map(ROOT.joinpath, pages(ROOT)):
        for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_a_shown_source_is_todays():
    source = (ROOT / "variants" / "vec128.cu").read_text()
    assert blocks.make("code:variants/vec128.cu", evidence()) == f"```cpp\n{source}```"
    for wrong in ("variants/none.cu", "../x.cu", "LICENSE", "variants/columns.cu"):
        with pytest.raises(LabError, match="code:"):
            blocks.make(f"code:{wrong}", evidence())


def test_sentences_add_up():
    rows = [
        dict(
            zip(
                ("class", "mutants", "killed", "survived", "equivalent", "final token", "final logits"),
                row,
                strict=True,
            )
        )
        for row in (("norms", 9, 7, 1, 1, 5, 6), ("all", 9, 7, 1, 1, 5, 6))
    ]
    text = blocks.make("sentence:mutants", evidence(result("mutants", "counted", rows)))
    for told in ("9 faults", "7 are found", "**1 survived**", "miss 2 of the 7", "logits 1 "):
        assert told in text, told
    tried = [{"what must not happen": "a", "tried": "9 kills", "went wrong": 0}]
    tried.append({"what must not happen": "b", "tried": "9 kills", "went wrong": 2})
    assert "9 kills; **2 went wrong**" in blocks.make("sentence:soak", evidence(result("soak", "counted", tried)))


def test_sums_of_counts_are_worked_out_by_hand():
    sums = totals({"qkv": {"weights_128bit": 160, "weights_32bit": 8, "shared_64bit": 800}, "down": {"kv_64bit": 16}})
    assert (sums["load_instructions"], sums["weights"], sums["activations"]) == (10 + 2 + 2, 168, 0)
    assert {"shared_64bit", "weights_32bit"} <= set(FIELDS)


TEXT = "a\n<!-- generated:one -->\nold\n<!-- /generated -->\nb\n<!-- generated:two -->\n<!-- /generated -->\n"


def make(name: str) -> str:
    return markdown(Table.of([{"name": name, "n": 1234}], notes=["A note."]))


def test_a_block_is_replaced_and_the_rest_is_kept():
    filled = blocks.fill(TEXT, "x.md", make)
    assert filled == blocks.fill(filled, "x.md", make)
    assert "| one | 1,234 |\n\nA note.\n<!-- /generated -->\nb\n" in filled
    assert "old" not in filled
    assert blocks.differing(filled, "x.md", make) == []
    assert blocks.differing(filled.replace("1,234", "1,235", 1), "x.md", make) == ["one"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("<!-- generated:one -->\n", "no end"), (TEXT.replace("old", "<!-- generated:in -->"), "begins inside another")],
)
def test_a_block_that_is_not_closed_is_refused(text, message):
    with pytest.raises(LabError, match=message):
        blocks.fill(text, "x.md", make)


def test_an_unknown_block_is_refused():
    with pytest.raises(LabError, match="no generated block typo"):
        blocks.make("typo", evidence())
    with pytest.raises(LabError, match="no digest of mutants"):
        blocks.make("digest:mutants", evidence())
    with pytest.raises(LabError, match="no sentence on roofline"):
        blocks.make("sentence:roofline", evidence())


def test_given_records_change_no_file_but_the_page(tmp_path, capsys):
    figure = tmp_path / "experiments" / "results" / "figures" / "old.svg"
    figure.parent.mkdir(parents=True)
    edited = "<!-- generated:variants -->\nedited\n<!-- /generated -->\n"
    for path, text in ((figure, "<svg/>"), (tmp_path / "README.md", edited), (tmp_path / "r.jsonl", "")):
        path.write_text(text)
    for name in ("conf", "variants"):
        (tmp_path / name).symlink_to(ROOT / name)

    def write(*records: str) -> int:
        return report(DictConfig({"records": [*records], "check": False, "debug": False}), tmp_path)

    assert write(str(tmp_path / "r.jsonl")) == 0
    assert capsys.readouterr().out.splitlines()[0] == "experiments/results/report.html"
    assert ((tmp_path / "README.md").read_text(), figure.exists()) == (edited, True)
    assert write() == 0
    assert ((tmp_path / "README.md").read_text() == edited, figure.exists()) == (False, False)


def test_the_check_names_the_edited_block(tmp_path, monkeypatch, capfd):
    (tmp_path / "README.md").write_text("<!-- generated:variants -->\nedited\n<!-- /generated -->\n")
    assert stale(evidence(), tmp_path) == ["README.md: block variants"]
    assert main(["check=true", "records=[missing.jsonl]"]) == 2
    assert capfd.readouterr().err.startswith(f"error: {Path.cwd()}/missing.jsonl is not there; ")
