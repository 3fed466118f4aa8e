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
    files = (ROOT / "experiments" / "results").glob("*.jsonl")
    known = {json.loads(line)["id"] for file in files for line in file.read_text().splitlines()}
    assert RECORD.findall("`20261127T172848-h200probe0` 2026") == ["20261127T172848-h200probe0"]
    assert {*RECORD.findall(JOURNAL)} <= known
