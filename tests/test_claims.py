"""Claims of the journal: the committed records support them, and neither text nor records can change alone."""

import re
from dataclasses import replace

import pytest
from claims import CLAIMS, ENTRY, FIRST_PAGE, entries, wrong

from common import ROOT
from common.stacks.catalog import read_catalog
from experiments.report.__main__ import RESULTS
from experiments.report.evidence import Evidence, read

JOURNAL = (ROOT / "DEVLOG.md").read_text()
TOLD = ("counts", "resources")  # the fields of a record that are changed below
LONGEST = 25  # lines of an entry


@pytest.fixture(scope="module")
def committed() -> Evidence:
    return read(sorted((ROOT / RESULTS).glob("*.jsonl")), read_catalog())


def test_every_claim_of_the_journal_holds_in_the_records(committed):
    assert CLAIMS.keys() == entries(JOURNAL).keys()
    assert list(wrong(JOURNAL, CLAIMS, committed)) == []


def test_every_entry_is_a_dated_question_with_reading_verdict_and_lesson_in_few_lines():
    for found in ENTRY.finditer(JOURNAL):
        text = found[0].partition("\n[mq]:")[0].rstrip()
        assert text.partition("\n")[0].endswith("?"), found[1]
        assert re.search(r"^\*20\d\d-\d\d-\d\d\.\*", text, re.MULTILINE), found[1]
        for part in ("**Reading.**", "**Verdict.**", "**Learned.**"):
            assert part in text, (found[1], part)
        assert sum(not line.startswith("<!--") for line in text.splitlines()) <= LONGEST, found[1]


CHANGES = (  # of registers and counts: the real order reversed, and the orders of the names
    lambda value, name: 10**13 - value,
    lambda value, name: value + sum(map(ord, name)) * 10**10,
    lambda value, name: value - sum(map(ord, name)) * 10**10,
)


def test_every_claim_depends_on_the_records(committed):
    def changed(row: dict, change) -> dict:
        def other(found: dict) -> dict:
            return {key: change(value, row["variant"]) for key, value in found.items() if isinstance(value, int)}

        return row | {key: {part: other(found) for part, found in (row.get(key) or {}).items()} for key in TOLD}

    refuted: set[str] = set()
    for change in CHANGES:
        records = tuple(changed(row, change) for row in committed.records)
        refuted |= {
            line for line in wrong(JOURNAL, CLAIMS, replace(committed, records=records)) if "does not hold" in line
        }
    about = [each for own in CLAIMS.values() for each in own if re.search(r"\b(registers|count|least)\(", each)]
    unaffected = [each for each in about if not any(each in line for line in refuted)]
    assert about
    assert unaffected == []


TEXT = "\n## Published rates\n\n## 3. Why?\n\n**Reading.** Of 28 layers, entry 3, `0:8`, 128-bit loads, RTX 3090.\n"
CLAIM = 'shape("layers") == 28'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("28 layers", "27 layers", "no claim names 27"),
        ("28 layers", "1,000 layers", "no claim names 1,000"),
        ("== 28", "== 28 - 1", "does not hold"),
        (CLAIM, "", "no claim"),
        ('"layers"', '"storeys"', "KeyError"),
        ('shape("layers")', 'registers("vec128", "sm_75")', "KeyError"),
        ('shape("layers")', 'cell("ratios", "average tok/s", "9:9")', "ValueError"),
        ('shape("layers") == 28', "28", "does not hold"),
    ],
)
def test_a_false_claim_is_reported(old, new, message, committed):
    def lines(text: str, claim: str) -> list[str]:
        return list(wrong(text, {FIRST_PAGE: ["1 == 1"], 3: [claim] if claim else []}, committed))

    assert lines(TEXT, CLAIM) == []
    (line, *_) = lines(TEXT.replace(old, new), CLAIM.replace(old, new))
    assert message in line
