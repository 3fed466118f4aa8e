"""The journal: every entry has its parts, and its links and the records that it cites are there."""

import json
import re

from common import ROOT

JOURNAL = (ROOT / "DEVLOG.md").read_text()
ENTRY = re.compile(r"^## (\d+)\. .*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)
LONGEST = 25  # lines of an entry
RECORD = re.compile(r"`(20\d{6}T\d{6}-\w+)`")


def test_every_entry_is_a_dated_question_with_reading_verdict_and_lesson_in_few_lines():
    entries = list(ENTRY.finditer(JOURNAL))
    assert [int(found[1]) for found in entries] == list(range(1, len(entries) + 1))
    for found in entries:
        text = found[0].partition("\n[mq]:")[0].rstrip()
        assert text.partition("\n")[0].endswith("?"), found[1]
        assert re.search(r"^\*20\d\d-\d\d-\d\d\.\*", text, re.MULTILINE), found[1]
        for part in ("**Reading.**", "**Verdict.**", "**Learned.**"):
            assert part in text, (found[1], part)
        assert sum(not line.startswith("|") for line in text.splitlines()) <= LONGEST, found[1]


def test_links_within_the_journal_lead_to_its_entries():
    heads = re.findall(r"^## (.+)$", JOURNAL, re.MULTILINE)
    known = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    links = re.findall(r"\]\(#([^)]+)\)", JOURNAL)
    assert len(links) > 5
    assert {*links} <= known


def test_records_that_the_journal_cites_exist():
    assert RECORD.findall("`20261127T172848-h200probe0` 2026") == ["20261127T172848-h200probe0"]
    assert {*RECORD.findall(JOURNAL)} <= {*records()}


def test_figures_of_a_row_that_cites_a_record_stand_together_in_it():
    """All cells of the row that are numbers, rounded as they are shown, are values of one mapping of the record."""
    known, checked = records(), 0
    for row in re.findall(r"^\|.*`20\d{6}T.*$", JOURNAL, re.MULTILINE):
        cells = [cell.strip().replace(",", "") for cell in row.split("|")]
        figures = [cell for cell in cells if re.fullmatch(r"\d+(\.\d+)?", cell)]
        if not figures:
            continue  # the head of a table
        shown = [(float(figure), 0.5001 * 10 ** -len(figure.partition(".")[2])) for figure in figures]
        alike = [
            group
            for name in RECORD.findall(row)
            for group in groups(known[name])
            if all(any(abs(number - figure) <= half for number in group) for figure, half in shown)
        ]
        assert alike, row
        checked += 1
    assert checked >= 4


def records():
    """Committed records by id."""
    files = (ROOT / "experiments" / "results").glob("*.jsonl")
    return {(row := json.loads(line))["id"]: row for file in files for line in file.read_text().splitlines()}


def groups(value):
    """The numbers of each mapping in a record."""
    if isinstance(value, dict):
        yield [each for each in value.values() if isinstance(each, int | float)]
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from groups(each)
