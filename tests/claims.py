"""Claims: what the journal's sentences rest on, evaluated over the records.

A claim is a Python expression of the functions of `Facts`; `claims.yaml` lists them by entry. It must hold, and each
figure of the entry's Reading must be a constant of its claims, so that neither text nor records can change alone.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from experiments.report.evidence import Evidence, totals

CLAIMS: Mapping[Any, Sequence[str]] = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text())
FIRST_PAGE = "first page"
ENTRY = re.compile(r"^## (\d+)\. .*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)
READING = re.compile(r"^\*\*Reading\.\*\*.*?(?=\n\n\*\*Verdict|\n\*\*Verdict|\Z)", re.MULTILINE | re.DOTALL)
# No part of a name (sm_90, bf16, `0:8`, RTX 3090), no width (128-bit), no number or link of an entry.
FIGURE = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\[\d+\]|^\d+\. |entr(?:y|ies) \d+(?: to \d+)?|to 27|\d+-bit|RTX \d+"
    r"|(?<![\w.])(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w-])",
    re.MULTILINE,
)
BUILTINS = {"round": round, "abs": abs, "min": min, "max": max, "sum": sum, "len": len}


@dataclass(frozen=True)
class Facts:
    """The functions of a claim. Each raises KeyError where no record has the figure."""

    evidence: Evidence

    def registers(self, name: str, arch: str) -> int:
        """Registers of a thread, for the shape that is counted."""
        return self._newest(self.evidence.built(name))["resources"][arch]["registers"]

    def count(self, name: str, field: str) -> int:
        """One field of the counts of a token, or a sum of `totals`."""
        return totals(self._newest(self.evidence.counted(name))["counts"]).get(field, 0)

    def shape(self, field: str) -> int:
        """One field of the model that is counted, such as `layers`."""
        return self._newest(self.evidence.counted("baseline"))["model"][field]

    def us(self, name: str, position: int) -> float:
        """Microseconds of a token on a GPU, by the newest run that has them at this position."""
        rows = [row for row in self.evidence.records if row.get("kind") == "run" and row["variant"] == name]
        found = [each for row in rows for each in row["latencies"] if each["position"] == position]
        return 1e6 * self._newest([*reversed(found), None])["seconds"]["median"]

    def cell(self, experiment: str, column: str, *keys: Any, basis: str = "") -> Any:
        """The cell of an experiment's newest table in the only row that has all `keys` among its values.

        The name of a variant stands for it with the defaults of its knobs. basis: of the table; "" for the best one.
        """
        (value,) = self.cells(experiment, column, *keys, basis=basis)
        return value

    def cells(self, experiment: str, column: str, *keys: Any, basis: str = "") -> list[Any]:
        """The cells of a column, of rows that have all `keys`; without missing ones."""
        known = [row for row in self.evidence.records if not basis or row.get("basis") == basis]
        rows = self._newest([replace(self.evidence, records=known).result(experiment)])["table"]
        plain = self.evidence.plain
        return [row[column] for row in rows if {*keys} <= {*map(plain, row.values())} and row.get(column) is not None]

    @staticmethod
    def _newest(found: Sequence[Mapping[str, Any] | None]) -> Mapping[str, Any]:
        if found[0] is None:
            raise KeyError("no record")
        return found[0]


def entries(journal: str) -> dict[Any, str]:
    """The text of each entry by its number, and of the first page; without generated blocks."""
    text = re.sub(r"<!-- generated:.*?<!-- /generated -->", "", journal, flags=re.DOTALL)
    page, found = text[: text.index("\n## Published rates")], {int(each[1]): each[0] for each in ENTRY.finditer(text)}
    return {FIRST_PAGE: page, **found}


def evaluate(claim: str, evidence: Evidence) -> Any:
    """The value of a claim."""
    functions = {name: getattr(Facts(evidence), name) for name in vars(Facts) if not name.startswith("_")}
    return eval(claim, {"__builtins__": BUILTINS}, functions)


def wrong(journal: str, claims: Mapping[Any, Sequence[str]], evidence: Evidence) -> Iterator[str]:
    """A line for each claim that does not hold, each Reading without one, and each figure that none of them names."""
    for key, text in entries(journal).items():
        prose = text if key == FIRST_PAGE else " ".join(READING.findall(text))
        own = claims.get(key, [])
        if not own:
            yield f"{key}: no claim"
        constants = {node.value for each in own for node in ast.walk(ast.parse(each)) if isinstance(node, ast.Constant)}
        for figure in filter(None, FIGURE.findall(prose)):
            if float(figure.replace(",", "")) not in constants:
                yield f"{key}: no claim names {figure}"
        for claim in own:
            try:
                holds = evaluate(claim, evidence) is True
            except (KeyError, TypeError, ValueError) as error:
                yield f"{key}: {claim}: {type(error).__name__} {error}"
            else:
                if not holds:
                    yield f"{key}: {claim} does not hold"
