"""Store of records under crashes, full disks, many writers and damaged lines."""

import json
import math
import random
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from whole_rows import RUN

from common import ROOT
from common.errors import LabError
from common.json_values import from_json
from common.model.shapes import Model
from common.record.record import CountRecord, Record, RunRecord, read_record
from common.record.store import SCHEMA, Store

HERE = Path(__file__).parent


def spawn(program: str, *arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=HERE.parent, **options)


def test_rows_are_read_back_in_order(tmp_path):
    store = Store(tmp_path / "new" / "folder" / "r.jsonl")
    assert store.records() == []
    ids = [store.append({"variant": "baseline", "number": number, "text": "two\nlines \u00b5"}) for number in range(3)]
    rows = store.records()
    assert [row["id"] for row in rows] == ids
    assert len(set(ids)) == 3
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert rows[0]["text"] == "two\nlines \u00b5"
    assert rows[0]["schema"] == SCHEMA
    assert rows[0]["time"] <= rows[1]["time"] <= rows[2]["time"]


def test_every_line_is_standard_json(tmp_path):
    @dataclass
    class Verdict:
        error: float
        where: tuple[int, ...]

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    store = Store(tmp_path / "r.jsonl")
    store.append(
        {
            "verdict": Verdict(math.nan, (1, 2)),
            "more": [np.float32(0.5), np.arange(2), math.inf, -math.inf],
            "path": tmp_path,
        }
    )
    (line,) = store.path.read_text().splitlines()
    row = json.loads(line, parse_constant=refuse)
    assert row["verdict"] == {"error": "NaN", "where": [1, 2]}
    assert row["more"] == [0.5, [0, 1], "Infinity", "-Infinity"]
    assert row["path"] == str(tmp_path)
    with pytest.raises(TypeError, match="object"):
        store.append({"verdict": object()})
    with pytest.raises(ValueError, match="id"):
        store.append({"id": "mine"})
    assert len(store.records()) == 1


def test_damaged_lines_are_named_and_no_row_is_lost(tmp_path, seed, caplog):
    store = Store(tmp_path / "r.jsonl")
    for number in range(6):
        store.append({"number": number})
    lines = store.path.read_bytes().splitlines()
    rng = random.Random(seed)
    first, second = sorted(rng.sample(range(5), 2))
    lines[first] = lines[first][: rng.randrange(1, len(lines[first]))]  # torn
    lines[second] = b"\x00\xff" + lines[second]  # garbage of a bad disk
    huge = json.dumps(RUN | {"id": "huge", "schema": SCHEMA, "time": "", "took": 10**400}).encode()  # beyond a float
    no_rows = [b"5", b'"id"', b'{"number": 1}', b"[]", b"null", b"[" * 10**6, huge, b""]
    damaged = b"\n".join(lines + no_rows) + b"\n"
    store.path.write_bytes(damaged)
    for _ in range(2):
        assert [row["number"] for row in store.records()] == [n for n in range(6) if n not in (first, second)], seed
        assert store.path.read_bytes() == damaged
    where = f"on line {first + 1}, {second + 1}, 7, 8, 9, 10, 11, 12, 13"
    assert [record.getMessage() for record in caplog.records] == [f"note: {store.path}: damaged row {where}"]


COUNT = RUN | {"kind": "count", "counts": {}}
SASS = {"kind": "sass", "question": "?", "basis": "counted", "columns": [], "table": [], "notes": [], "needs_gpu": None}
WHOLE = {"run": RUN, "count": COUNT, "table": SASS | {"provenance": {}}}


NEEDED = {
    "run": """variant stack knobs model threads source_sha provenance key status reason weights device parent seed
        verdict counts resources latencies generation model.hidden model.tied weights.sha device.compiler""",
    "count": "variant stack knobs model threads source_sha provenance key counts blocks model.positions model.rms_eps",
    "table": "question basis columns notes needs_gpu provenance",
}


@pytest.mark.parametrize("change", ["missing", "of another type"])
@pytest.mark.parametrize("kind", WHOLE)
def test_a_row_with_a_field_missing_or_of_another_type_is_no_row(tmp_path, caplog, kind, change):
    store = Store(tmp_path / "r.jsonl")
    names = NEEDED[kind].split()
    for name in names:
        parent, _, field = name.rpartition(".")
        row = json.loads(json.dumps(WHOLE[kind]))
        within = row[parent] if parent else row
        within[field] = {"of another type": [1.5]} if isinstance(within[field], list) else [1.5]
        if change == "missing":
            del within[field]
        store.append(row)
    store.append(WHOLE[kind])
    assert [row["kind"] for row in store.records()] == [WHOLE[kind]["kind"]]
    assert f"on line {', '.join(str(n + 1) for n in range(len(names)))}" in caplog.text


def test_committed_rows_are_whole(caplog):
    paths = [*(ROOT / "experiments" / "results").glob("*.jsonl")]
    assert paths
    for path in paths:
        ids = [json.loads(line)["id"] for line in path.read_text().splitlines()]
        assert sorted(record.id for record in Store(path).read(Record)) == sorted(ids)
    assert not caplog.records


def test_fields_that_are_absent_take_defaults_and_unknown_ones_are_kept():
    @dataclass(frozen=True)
    class Newer(Model):
        bias: bool = False

    row = {**RUN, "id": "a", "schema": SCHEMA, "time": "2026-01-01", "colour": "red"}
    del row["report"]
    record = read_record(row)
    assert (type(record), record.report, record.took, record.row["colour"]) == (RunRecord, "", None, "red")
    assert from_json(Newer, row["model"]) == Newer(**row["model"], bias=False)


def test_records_are_read_by_their_kind(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    ids = [store.append(row) for row in (RUN, COUNT, RUN)]
    assert [run.id for run in store.read(RunRecord)] == [ids[0], ids[2]]
    assert [(count.id, count.model.hidden) for count in store.read(CountRecord)] == [(ids[1], 64)]


@pytest.mark.parametrize(("cut", "kept"), [(9, [1]), (1, [0, 1])])
def test_a_row_after_a_torn_one_or_a_missing_newline_is_whole(tmp_path, cut, kept):
    store = Store(tmp_path / "r.jsonl")
    store.append({"number": 0})
    store.path.write_bytes(store.path.read_bytes()[:-cut])
    store.append({"number": 1})
    assert [row["number"] for row in store.records()] == kept


def test_stores_of_two_machines_are_merged_by_cat(tmp_path):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    ids = [here.append({"on": "here"}), there.append({"on": "there"}), there.append({"on": "there"})]
    here.path.write_bytes(2 * there.path.read_bytes() + here.path.read_bytes())
    assert [row["id"] for row in here.records()] == ids, "the last is the newest, whichever file came first"


def test_many_writers_some_of_them_killed(tmp_path, caplog):
    path = tmp_path / "r.jsonl"
    program = """
import sys
from common.record.store import Store
store = Store(sys.argv[1])
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    store.append({"writer": sys.argv[2], "number": number, "filler": "x" * 20_000})
"""
    finite = [spawn(program, str(path), str(writer), "40") for writer in range(3)]
    endless = [spawn(program, str(path), f"killed {n}", "1000000", stdout=subprocess.PIPE) for n in range(2)]
    for process in endless:
        process.stdout.readline()
    for process in finite:
        assert process.wait() == 0
    for process in endless:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    rows = Store(path).records()
    assert len(caplog.records) <= 1
    for writer in range(3):
        assert [row["number"] for row in rows if row["writer"] == str(writer)] == list(range(40))
    assert Store(path).append({"writer": "after"}) in {row["id"] for row in Store(path).records()}


def test_a_full_disk_leaves_the_file_unchanged(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    store.append({"number": 0})
    before = store.path.read_bytes()
    program = """
import resource, sys
from common.errors import LabError
from common.record.store import Store
try:
    Store(sys.argv[1]).append({"filler": "x" * 100_000})
except LabError as error:
    print(error)
"""
    process = spawn(
        program,
        str(store.path),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 500,) * 2),
    )
    printed, _ = process.communicate()
    assert "cannot be written: File too large" in printed
    assert store.path.read_bytes() == before


def test_an_unwritable_path_is_reported_before_any_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"cannot be written: .*; choose another file with results="):
        Store(tmp_path / "file/r.jsonl").check()


def test_check_writes_no_row(tmp_path):
    store = Store(tmp_path / "a" / "r.jsonl")
    store.check()
    assert store.records() == []


def test_rows_of_another_schema_are_refused(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    for schema in (SCHEMA - 1, SCHEMA + 1):
        store.path.write_text(f'{{"id": "other", "schema": {schema}}}\n')
        with pytest.raises(LabError, match=f"rows of schema {schema}, and this version of the lab reads {SCHEMA}; "):
            store.records()
