"""Show, compare and export records: `python -m experiments.show --help`."""

import json
import re
import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.section import Section
from common.config.texts import quoted
from common.errors import LabError
from experiments.tables.find import Record, find, newest, undamaged

OPTIONS = ("id", "compare", "export", "out", "results", "json", "debug")
LISTED = 20  # records


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(show, "show", words(sys.argv[1:] if argv is None else argv))


def words(argv: Sequence[str]) -> list[str]:
    """The command line as Hydra reads it: ids, which stand alone, and `compare=A,B` become lists of quoted texts."""
    others, ids = list[str](), list[str]()
    for before, word in zip(["", *argv], argv, strict=False):
        if re.fullmatch(r"id=[^[]+", word):
            ids.append(word.removeprefix("id="))
        elif word.startswith("compare="):
            others.append(f"compare={_list(re.split(r',(?![^[]*])', word.removeprefix('compare=')))}")
        elif "=" in word or word.startswith("-") or before.startswith("-"):  # a key, a flag, the value of a flag
            others.append(word)
        else:
            ids.append(word)
    return [*others, *([f"id={_list(ids)}"] if ids else [])]


def _list(texts: Sequence[str]) -> str:
    return f"[{','.join(map(quoted, texts))}]"


def show(cfg: DictConfig) -> int:
    """Print an export, a comparison, some records, or a list. Raises LabError."""
    options = Section.from_config(cfg)
    options.only(OPTIONS)
    results, as_json = options.location("results"), options.flag("json")
    chosen = [name for name in ("id", "compare", "export") if options.values[name]]
    if len(chosen) > 1:
        raise LabError(f"both {chosen[0]} and {chosen[1]} are given", "give the one or the other")
    if options.given("export"):
        from experiments.show.export import export

        out = options.location("out") if options.given("out") else None
        export(newest(results)[::-1], options.text("export"), out)
    elif options.texts("compare"):
        _compare(options)
    elif ids := options.texts("id"):
        for row in [find(name, results) for name in ids]:
            _show_one(row, as_json)
    else:
        from experiments.show.record import listed, show_list

        rows = newest(results)[:LISTED][::-1]
        if as_json:
            print("\n".join(json.dumps(listed(row)) for row in rows))
        else:
            show_list(rows)
    return 0


def _show_one(row: Record, as_json: bool) -> None:
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


def _compare(options: Section) -> None:
    """Print two runs side by side. Raises LabError when they cannot be compared."""
    from experiments.prediction.forecast import GPU, MODEL, forecaster
    from experiments.run.reproduce import stack_of
    from experiments.show.compare import compared, pair
    from experiments.tables.result_table import print_result

    results = options.location("results")
    rows = pair(options.texts("compare"), results)

    def microseconds(row: Record) -> float | None:
        try:
            return forecaster(row["threads"], results)(stack_of(row)).microseconds
        except LabError:  # a variant that no longer exists
            return None

    with undamaged(rows[0]), undamaged(rows[1]):
        table = compared(*rows, [microseconds(row) for row in rows], f"{GPU}, {MODEL}")
    print_result(table, options.flag("json"))


if __name__ == "__main__":
    raise SystemExit(main())
