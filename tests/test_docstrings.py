"""Docstrings begin with a noun phrase or an imperative, which a reader understands at once."""

import re

from common import ROOT

BEGUN = re.compile(r'"""(?:What|Whether|Of|Those|How)\b.*')


def test_no_docstring_begins_with_a_clause():
    files = (
        path for folder in ("common", "experiments", "profiles", "tests") for path in (ROOT / folder).rglob("*.py")
    )
    assert [f"{path}: {found}" for path in files for found in BEGUN.findall(path.read_text())] == []
