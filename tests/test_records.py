"""The store under what happens to it: crashes, full disks, many writers, damaged lines."""

import json
import math
import random
import resource
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from permissions import as_anybody

from common.errors import LabError
from common.records import SCHEMA, Store, key

HERE = Path(__file__).parent


def spawn(program: str, *arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=HERE.parent, **options)


def test_what_goes_in_comes_out_in_order(tmp_path):
    store = Store(tmp_path / "new" / "folder" / "r.jsonl")
    assert store.rows() == []
    ids = [store.append({"variant": "baseline", "number": number, "text": "two\nlines \u00b5"}) for number in range(3)]
    rows = store.rows()
    assert [row["id"] for row in rows] == ids
    assert len(set(ids)) == 3
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert rows[0]["text"] == "two\nlines \u00b5"
    assert rows[0]["schema"] == SCHEMA
    assert rows[0]["time"] <= rows[1]["time"] <= rows[2]["time"]


def test_every_line_is_json_that_any_reader_takes(tmp_path):
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
    assert len(store.rows()) == 1


def test_damaged_lines_are_set_aside_once_and_nothing_is_lost(tmp_path, seed):
    store = Store(tmp_path / "r.jsonl")
    for number in range(6):
        store.append({"number": number})
    lines = store.path.read_bytes().splitlines()
    rng = random.Random(seed)
    first, second = sorted(rng.sample(range(5), 2))
    lines[first] = lines[first][: rng.randrange(1, len(lines[first]))]  # torn
    lines[second] = b"\x00\xff" + lines[second]  # garbage of a bad disk
    damaged = b"\n".join(lines) + b"\n"
    store.path.write_bytes(damaged)
    for _ in range(2):
        with pytest.warns(UserWarning, match=f"line {first + 1}, {second + 1}; copied to"):
            rows = store.rows()
        assert [row["number"] for row in rows] == [n for n in range(6) if n not in (first, second)], seed
        assert store.path.with_name("r.jsonl.corrupt").read_bytes().splitlines() == [lines[first], lines[second]]
        assert store.path.read_bytes() == damaged


def test_lines_that_are_json_but_no_row_are_damage(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    store.path.write_text('5\n"id"\n{"number": 1}\n[]\nnull\n\n')
    with pytest.warns(UserWarning, match="line 1, 2, 3, 4, 5;"):
        assert store.rows() == []


def test_a_row_after_a_torn_one_is_whole(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    store.append({"number": 0})
    store.path.write_bytes(store.path.read_bytes()[:-9])
    store.append({"number": 1})
    with pytest.warns(UserWarning, match="line 1;"):
        assert [row["number"] for row in store.rows()] == [1]


def test_a_file_without_a_last_newline_is_whole(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    store.append({"number": 0})
    store.path.write_bytes(store.path.read_bytes()[:-1])
    store.append({"number": 1})
    assert [row["number"] for row in store.rows()] == [0, 1]


def test_stores_of_two_machines_are_merged_by_cat(tmp_path):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    ids = [here.append({"on": "here"}), there.append({"on": "there"}), there.append({"on": "there"})]
    here.path.write_bytes(here.path.read_bytes() + 2 * there.path.read_bytes())
    assert [row["id"] for row in here.rows()] == ids


def test_many_writers_some_of_them_killed(tmp_path):
    path = tmp_path / "r.jsonl"
    program = """
import sys
from common.records import Store
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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = Store(path).rows()
    assert len(caught) <= 1
    for writer in range(3):
        assert [row["number"] for row in rows if row["writer"] == str(writer)] == list(range(40))
    assert Store(path).append({"writer": "after"}) in {row["id"] for row in Store(path).rows()}


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    store.append({"number": 0})
    before = store.path.read_bytes()
    program = """
import resource, sys
from common.errors import LabError
from common.records import Store
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
    told, _ = process.communicate()
    assert "took 500 of 100" in told
    assert store.path.read_bytes() == before


@pytest.mark.parametrize("path", ["file/r.jsonl", "folder"])
def test_a_place_that_cannot_be_written_is_told_before_work(tmp_path, path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(LabError, match=r"cannot be written: .*; choose another file with results="):
        Store(tmp_path / path).check()


def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with as_anybody(), pytest.raises(LabError, match="Permission denied"):
        Store(tmp_path / "r.jsonl").check()


def test_check_writes_no_row(tmp_path):
    store = Store(tmp_path / "a" / "r.jsonl")
    store.check()
    assert store.rows() == []


def test_keys_are_equal_exactly_when_all_parts_are():
    parts = {
        "source_sha": "s",
        "knobs": {"prefetch": {"ahead": 2, "ratio": "2:6"}},
        "model": "tiny",
        "weights_sha": "w",
        "device": "host",
        "compiler": "g++ 12",
    }
    assert key(**parts) == key(**parts | {"knobs": {"prefetch": {"ratio": "2:6", "ahead": 2}}})
    changed = [key(**parts | {name: "other"}) for name in parts]
    changed.append(key(**parts | {"knobs": {"prefetch": {"ahead": 3, "ratio": "2:6"}}}))
    assert len({key(**parts), *changed}) == len(changed) + 1


def test_rows_of_older_schemas_are_read_and_of_newer_ones_refused(tmp_path):
    store = Store(tmp_path / "r.jsonl")
    store.path.write_text('{"id": "old", "schema": 1, "status": "PASSED"}\n')
    new = store.append({"asked": {"blocks": 3}})
    before = store.path.read_bytes()
    assert store.rows()[0] == {"id": "old", "schema": SCHEMA, "status": "PASSED", "asked": None}
    assert (store.rows()[1]["id"], store.rows()[1]["asked"]) == (new, {"blocks": 3})
    assert store.path.read_bytes() == before
    store.path.write_text(f'{{"id": "newer", "schema": {SCHEMA + 1}}}\n')
    with pytest.raises(LabError, match=f"schema {SCHEMA + 1}, and this lab knows {SCHEMA}"):
        store.rows()
