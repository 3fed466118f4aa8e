"""Report: generated blocks that only records and sources can change, and the gallery's counts and times."""

import json
import re

import pytest
from made_records import MODEL, UNTIMED, evidence, line, lines, run, timed
from omegaconf import DictConfig

from common import ROOT
from common.devices.counters import FIELDS
from common.display.table import Table, markdown
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.report import blocks
from experiments.report.__main__ import FIGURES, RESULTS, main, pages, report, stale
from experiments.report.evidence import read, totals
from experiments.report.gallery import OPEN, change, gallery


def shown(name: str, *records: dict) -> dict:
    """The line of the gallery of `name`."""
    return line(gallery(evidence(*records)), name)


def test_generated_blocks_match_the_records():
    records = sorted((ROOT / RESULTS).glob("*.jsonl"))
    found = stale(read(records, read_catalog()), ROOT)
    assert not found, f"{found}: run python -m experiments.report"


def test_the_newest_counts_are_used_and_compared_with_the_parents():
    row = shown("redundant_rmsnorm", *UNTIMED)
    assert row["exchanges"] == "6 (-4) barriers"
    assert row["time against parent"] == OPEN


def test_counts_of_other_knobs_or_another_grid_are_not_compared():
    other = run("redundant_rmsnorm", ["redundant_rmsnorm"], 6, when=2, blocks=82)
    assert shown("redundant_rmsnorm", UNTIMED[0], other)["exchanges"] == "6 barriers"
    knobbed = run("vec128", ["vec128"], 6, knobs={"vec128": {"l1": "no_allocate"}})
    assert len(gallery(evidence(UNTIMED[0], knobbed)).rows) == 1


def test_the_gallery_is_narrow_and_links_to_each_source():
    table = gallery(evidence(*UNTIMED))
    assert len(table.columns) <= 5
    for row in lines(table):
        assert (ROOT / "docs" / row["variant"].link).is_file()
    assert "| [redundant_rmsnorm](../variants/redundant_rmsnorm.cu) |" in markdown(table)
    assert len(table.rows) == 2, "a variant without records is left out: two new files change no committed page"
    assert not gallery(evidence()).rows


def test_measured_gpu_time_is_shown_with_its_interval():
    row = shown("redundant_rmsnorm", *UNTIMED, timed("redundant_rmsnorm", ["redundant_rmsnorm"]))
    assert row["time against parent"] == "A GPU, tiny: 500.0 us at 1: FASTER -10.0 % [-12.0, -9.0]"


def at(positions: list[int], when: int, cache: int = 64, **more) -> dict:
    """A run of megaqwen on a GPU, timed at `positions` with a cache of that size; 100 us slower at each second."""
    row = timed("megaqwen", ["redundant_rmsnorm", "l2_prefetch", "vec128"])
    known = evidence()._stacks["megaqwen"].knobs
    (latency,) = row["latencies"]
    times = [latency | {"position": each, "seconds": {"median": 1e-4 * when}} for each in positions]
    row |= {"id": f"m-{when}", "time": f"2026-01-01T00:00:{when:02}+00:00", "latencies": times, "knobs": known}
    return row | {"model": MODEL | {"positions": cache}} | more


def test_the_effect_of_leaving_one_out_is_never_shown_as_the_stacks_own():
    own = at([1], when=10)
    without = at([1], when=11, parent=["redundant_rmsnorm", "l2_prefetch"], variant="megaqwen - vec128")
    for rows in ([own, without], [without, own]):
        assert "1000.0 us at 1" in shown("megaqwen", *rows)["time against parent"]
    assert not gallery(evidence(without)).rows


def test_positions_and_caches_are_not_mixed():
    """Three runs of a ladder with a larger cache are newer than the ablation, and others have the ablation only."""
    norm = timed("redundant_rmsnorm", ["redundant_rmsnorm"])
    ladder = at([1, 4096], when=12, cache=16448)
    rows = (norm, at([1], when=10), ladder)
    assert "1000.0 us at 1:" in shown("megaqwen", *rows)["time against parent"]
    assert "4096" not in markdown(gallery(evidence(*rows)))
    assert "4096" in markdown(gallery(evidence(ladder))), "of the only question asked, all positions"


def test_an_implausible_time_is_not_shown():
    row = at([1], when=10)
    row["latencies"] = [latency | {"verdict": "IMPLAUSIBLE"} for latency in row["latencies"]]
    assert shown("megaqwen", row)["time against parent"] == "A GPU, tiny: IMPLAUSIBLE"


def test_a_time_of_a_wrong_kernel_is_not_shown():
    wrong = at([1], when=11) | {"status": "MISMATCH"}
    assert shown("megaqwen", at([1], when=10), wrong)["time against parent"].startswith("A GPU, tiny: 1000.0 us at 1:")
    assert not gallery(evidence(wrong)).rows


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


def test_loads_are_worked_out_by_hand():
    sums = totals({"qkv": {"weights_128bit": 160, "weights_32bit": 8, "shared_64bit": 800}, "down": {"kv_64bit": 16}})
    assert (sums["load_instructions"], sums["weights_32bit"]) == (10 + 2 + 2, 8)
    assert {"shared_64bit", "weights_32bit"} <= set(FIELDS)


def test_what_is_left_is_never_shown_as_nothing():
    loads = {"load_instructions": 298_000_000}
    assert change("load_instructions", {"load_instructions": 1_251_600}, loads) == "1.25 M (-99.58 %)"
    assert change("load_instructions", {"load_instructions": 0}, loads) == "0 (-100 %)"
    assert change("load_instructions", {"load_instructions": 2_980_000}, loads) == "2.98 M (-99 %)"


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


@pytest.mark.parametrize("name", ["typo", "sentence:mutants", "experiment:roofline"])
def test_an_unknown_block_is_refused(name):
    with pytest.raises(LabError, match=f"no generated block {name}"):
        blocks.make(name, evidence())


def test_blocks_and_the_shown_figures_are_written_and_others_removed(tmp_path, capsys):
    figure = tmp_path / FIGURES / "old.svg"
    figure.parent.mkdir(parents=True)
    edited = "<!-- generated:variants -->\nedited\n<!-- /generated -->\n"
    for path, text in ((figure, "<svg/>"), (tmp_path / "README.md", edited)):
        path.write_text(text)
    for name in ("conf", "variants"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert report(DictConfig({"check": False, "debug": False}), tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == ["README.md", "from 0 records"]
    assert ((tmp_path / "README.md").read_text() == edited, figure.exists()) == (False, False)


def test_the_check_names_the_edited_block(tmp_path, capfd):
    (tmp_path / "README.md").write_text("<!-- generated:variants -->\nedited\n<!-- /generated -->\n")
    assert stale(evidence(), tmp_path) == ["README.md: block variants"]
    assert main(["records=[x.jsonl]"]) == 2
    assert re.fullmatch(r"error: .*records.*\n", capfd.readouterr().err)


def test_committed_counts_have_a_line_a_stack():
    rows = [json.loads(text) for text in (ROOT / RESULTS / "counts.jsonl").read_text().splitlines()]
    stacks = [("+".join(row["stack"]), json.dumps(row["knobs"], sort_keys=True)) for row in rows]
    assert {row["kind"] for row in rows} == {"count"}
    assert stacks == sorted({*stacks}), "a line a stack, sorted"
