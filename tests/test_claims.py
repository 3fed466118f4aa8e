"""Claims of the journal: the committed records support them, and neither text nor records can change alone."""

import re
from dataclasses import replace

import pytest

from common import ROOT
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.report.__main__ import RESULTS
from experiments.report.claims import CLAIM, PARAGRAPH, evaluate, wrong
from experiments.report.evidence import Evidence, read

JOURNAL = (ROOT / "DEVLOG.md").read_text()
EVERY = [each for claims, _, _ in PARAGRAPH.findall(JOURNAL) for each in CLAIM.findall(claims)]
TOLD = ("counts", "resources")  # the fields of a record that are changed below


@pytest.fixture(scope="module")
def committed() -> Evidence:
    return read(sorted((ROOT / RESULTS).glob("*.jsonl")), read_catalog())


def test_every_claim_of_the_journal_holds_in_the_records(committed):
    assert len([part for _, part, _ in PARAGRAPH.findall(JOURNAL) if part == "Reading"]) == JOURNAL.count(
        "**Reading.**"
    )
    assert len(EVERY) == JOURNAL.count("<!-- claim: ")
    assert list(wrong(JOURNAL, committed)) == []


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
        refuted |= {line for line in wrong(JOURNAL, replace(committed, records=records)) if "does not hold" in line}
    about = [each for each in EVERY if re.search(r"\b(registers|count|least)\(", each)]
    unaffected = [each for each in about if not any(" ".join(each.split()) in line for line in refuted)]
    assert about
    assert unaffected == []


TEXT = '<!-- claim: shape("layers") == 28 -->\n**Reading.** Of 28 layers, entry 3, `0:8` and 128-bit loads, RTX 3090.\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("28 layers", "27 layers", "no claim names 27"),
        ("28 layers", "1,000 layers", "no claim names 1,000"),
        ("== 28", "== 28 - 1", "does not hold"),
        ('<!-- claim: shape("layers") == 28 -->\n', "", "has no claim"),
        ('"layers"', '"storeys"', "KeyError"),
        ("shape", "open", "may not stand in a claim"),
        ('shape("layers")', "().__class__", "may not stand in a claim"),
        ('shape("layers")', 'registers("vec128", "sm_75")', "KeyError"),
        ('shape("layers")', 'cell("ratios", "average tok/s", "9:9")', "no record has"),
        ('shape("layers") == 28', "28", "does not hold"),
    ],
)
def test_a_false_claim_is_reported(old, new, message, committed):
    assert list(wrong(TEXT, committed)) == []
    (line, *_) = wrong(TEXT.replace(old, new), committed)
    assert message in line


def test_claims_are_arithmetic_and_comparison(committed):
    assert evaluate("1 < 2 < 3 and not 2 * 3 == 5", committed) is True
    assert evaluate("1 < 2 < 2 or 2 ** 3 != 8", committed) is False
    assert evaluate('"-33 %" in "a loss of -33 %"', committed) is True
    with pytest.raises(LabError, match="SyntaxError"):
        evaluate("1 <", committed)
