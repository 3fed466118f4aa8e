"""Show, compare and export records: `python -m experiments.show --help`."""

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.section import Section
from common.errors import LabError
from experiments.tables.find import Record, find, newest, undamaged

KEYS = ("id", "compare", "export", "out", "results", "json", "debug")
LISTED = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(show, "show", words(sys.argv[1:] if argv is None else argv))


def words(argv: Sequence[str]) -> list[str]:
    """The command line as Hydra reads it: ids, which stand alone, and `compare=A,B` become lists of quoted texts."""
    ids = [word.removeprefix("id=") for before, word in zip(["", *argv], argv, strict=False) if _is_id(before, word)]
    rest = [word for before, word in zip(["", *argv], argv, strict=False) if not _is_id(before, word)]
    names = [f"compare={_quoted(re.split(r',(?![^[]*])', word[8:]))}" for word in rest if word.startswith("compare=")]
    rest = [word for word in rest if not word.startswith("compare=")]
    return [*rest, *names, *([f"id={_quoted(ids)}"] if ids else [])]


def _is_id(before: str, word: str) -> bool:
    """True if `word` is no flag, no value of the flag `before` it, and no key=value but id=WORD."""
    if re.fullmatch(r"id=[^[]+", word):
        return True
    return not word.startswith("-") and "=" not in word and not before.startswith("-")


def _quoted(texts: Sequence[str]) -> str:
    return "[" + ",".join("'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" for text in texts) + "]"


def show(cfg: DictConfig) -> int:
    """Print what `cfg` asks for: an export, a comparison, some records, or a list. Raises LabError."""
    asked = Section.from_config(cfg)
    asked.only(KEYS)
    results, as_json = asked.location("results"), asked.flag("json")
    chosen = [name for name in ("id", "compare", "export") if asked.values[name]]
    if len(chosen) > 1:
        raise LabError(f"both {chosen[0]} and {chosen[1]} are given", "give the one or the other")
    if asked.given("export"):
        from experiments.show.export import export

        export(newest(results)[::-1], asked.text("export"), asked.location("out") if asked.given("out") else None)
    elif asked.texts("compare"):
        compare(asked)
    elif ids := asked.texts("id"):
        for row in [find(name, results) for name in ids]:
            whole(row, as_json)
    else:
        rows = newest(results)[:LISTED][::-1]
        from experiments.show.record import listed, show_list

        if as_json:
            print("\n".join(json.dumps(listed(row)) for row in rows))
        else:
            show_list(rows)
    return 0


def whole(row: Record, as_json: bool) -> None:
    """Print a record, whether today's source is still the same, and the command that reproduces it."""
    from experiments.show.record import show_record

    try:
        with undamaged(row):
            source, command = _today(row)
    except LabError:
        source, command = "unknown", "unknown"
    if as_json:
        print(json.dumps({**row, "source_today": source, "command": command}))
        return
    with undamaged(row):
        show_record(row, source, command)


def _today(row: Record) -> tuple[str, str]:
    """State of today's source beside the record's, and the command that reproduces it."""
    recorded = (row.get("provenance") or {}).get("command") or "unknown"
    if row.get("kind") != "run":
        return "", recorded
    from experiments.run.reproduce import command, source_now

    try:
        now, again = source_now(row), command(row)
    except LabError as error:
        seed = "" if " seed=" in recorded else f" seed={row['seed']}"
        return f"today there is no such source: {error.cause}", recorded + seed
    return "today's source is the same" if now == row["source_sha"] else f"today's source is another: {now}", again


def compare(asked: Section) -> None:
    """Print two runs side by side. Raises LabError when they cannot be compared."""
    from experiments.prediction.forecast import GPU, MODEL, forecaster
    from experiments.run.reproduce import stack_of
    from experiments.show.compare import compared, pair
    from experiments.tables.result_table import print_result

    results = asked.location("results")
    rows = pair(asked.texts("compare"), results)

    def microseconds(row: Record) -> Any:
        try:
            return forecaster(row["threads"], results)(stack_of(row)).microseconds
        except LabError:  # a variant that no longer exists
            return None

    with undamaged(rows[0]), undamaged(rows[1]):
        predicted = [microseconds(row) for row in rows]
        table = compared(*rows, predicted, f"{GPU}, {MODEL}")
    print_result(table, asked.flag("json"))


if __name__ == "__main__":
    raise SystemExit(main())
