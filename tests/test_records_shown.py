"""Records as a user looks at them: `python -m experiments.show`, one of them and the list."""

import json

import pytest
from made_records import result, run
from made_records import shown_run as record

from common.record.store import Store
from experiments.show import __main__ as show

OTHER = {"knobs": {"warp_split": {"producers": 0, "consumers": 8}}}
CLEAN = {"git": {"commit": "c" * 40, "dirty": False}, "command": "python -m x"}


@pytest.fixture
def store(tmp_path):
    """store(record, ...): the ids under which a store keeps them; `store.path` is its file."""

    def keep(*records: dict) -> list[str]:
        rows = [{name: value for name, value in one.items() if name not in ("id", "time")} for one in records]
        return [Store(keep.path).append(row) for row in rows]

    keep.path = tmp_path / "r.jsonl"
    return keep


@pytest.fixture
def shows(store, capsys):
    """shows(*argv): exit code, stdout and stderr of the command."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = show.main([*argv, f"results={store.path}"])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_without_an_id_it_lists_the_newest_last(store, shows):
    ids = store(*(record(seed=number) for number in range(25)))
    code, out, _ = shows()
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ids[-20:]
    assert out.splitlines()[-1].endswith("run   PASSED  warp_split ratio=2:6")
    listed = [json.loads(line) for line in shows("json=true")[1].splitlines()]
    assert [line["id"] for line in listed] == ids[-20:]
    step = {"asked": "", "device": "cpu", "code": None, "seconds": 1.0, "rows": 0, "report": "", "provenance": CLEAN}
    store({"kind": "step", "name": "ladder", "state": "cut", **step})
    assert shows()[1].splitlines()[-1].endswith("step  cut     ladder")


def test_a_record_is_shown_with_all_that_it_says(store, shows):
    counts = {"qkv": {"grid_barriers": 1234, "shuffles": 5}, "down": {"grid_barriers": 1}}
    hung = record(
        status="HUNG", reason="no block went on", report="block 3 waits at a.cuh:7\nblock 4 ended", counts=counts
    )
    hung["verdict"] = hung["verdict"] | {"not_exercised": ["many words", "long"]}
    (name,) = store(hung)
    code, out, _ = shows("last")
    assert code == 0
    words = " ".join(out.split())
    for text in ("hidden 64", "registers 59", "28 instructions", "compiler NVRTC 13.0", "exercised many words; long"):
        assert text in words, text
    for text in (
        name, "warp_split ratio=2:6", "parent", "baseline", "HUNG", "no block went on",
        "2.0e-07 / 1.6e-06 allowed, at attention layer 0", "  block 3 waits at a.cuh:7\n  block 4 ended", "1,235",
        "a" * 40, "synthetic version 1 seed 5",
    ):  # fmt: skip
        assert text in out, text
    assert out.splitlines()[-1].startswith("Reproduce: ")
    whole = json.loads(shows(name, "json=true")[1])
    assert (whole["counts"], whole["report"]) == (counts, hung["report"])


def test_an_experiment_is_shown_with_its_table(store, shows):
    store(result("positions", "measured", [{"a": "left", "b": 1.5}, {"a": "right", "b": None}]))
    code, out, _ = shows("last")
    assert code == 0
    for text in (
        "why positions?",
        "(measured)",
        "left",
        "1.5",
        "Read it so.",
        "Needs a GPU: all of it",
        "python -m x <y>",
    ):
        assert text in out, text


def test_other_records_are_shown_as_they_are(store, shows):
    store(run("vec128", ["vec128"], 1, kind="count", key="0", counts={"qkv": {"shuffles": 77}}))
    code, out, _ = shows("last")
    assert (code, "shuffles 77" in out, "vec128" in out.splitlines()[0]) == (0, True, True)


def test_a_row_of_an_experiment_has_its_own_name(store, shows):
    asked = {"task": "rivals", "row": "torch in a CUDA graph", "seed": 7}
    store({"kind": "row", "asked": asked, "found": {"state": "ran"}, "reason": "", "took": 1.0, "provenance": CLEAN})
    assert shows()[1].splitlines()[-1].endswith("rivals: torch in a CUDA graph")
    assert shows("last")[1].startswith("rivals: torch in a CUDA graph  (row ")


GENERATE = "python -m experiments.generate 'prompt=\"Once upon\"' weights=.../a"
QUOTED = """python -m profiles 'weights='"'"'.../my model'"'"''"""


@pytest.mark.parametrize(
    ("command", "more", "shown"),
    [
        ("python -m experiments experiment=positions results=.../r.jsonl cache=.../c", {"seed": 5},
         "python -m experiments experiment=positions seed=5"),
        ("python -m experiments experiment=rivals seed=6", {"asked": {"task": "rivals", "row": "torch", "seed": 6}},
         "python -m experiments experiment=rivals seed=6"),
        ("python -m experiments experiment=sync_cost", {"asked": {"task": "sync_cost", "row": "a", "seed": 6}},
         "python -m experiments experiment=sync_cost seed=6"),
        (GENERATE, {"seed": 7}, f"{GENERATE} seed=7  (the record has no folders: complete weights)"),
        (QUOTED, {"seed": 7}, f"{QUOTED} seed=7  (the record has no folders: complete weights)"),
        ("python mine.py", {"seed": 8}, "python mine.py  (seed 8)"),
    ],
)  # fmt: skip
def test_what_repeats_a_record_has_its_seed_and_says_what_it_lacks(store, shows, command, more, shown):
    store({"kind": "some", "provenance": {"command": command}, **more})
    assert shows("last")[1].splitlines()[-1] == f"Reproduce: {shown}"


def test_several_ids_and_unique_beginnings(store, shows):
    first, second = store(record(), record(**OTHER))
    _, out, _ = shows(first, second)
    assert (out.count("Reproduce: "), first in out, second in out) == (2, True, True)
    length = next(at for at in range(len(first)) if first[at] != second[at]) + 1
    assert first in shows(first[:length])[1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nothing"], "has no record with the id nothing; python -m experiments.show lists them"),
        (["2"], "2 records of {path} begin with 2; give more of the id: "),
        (["resuls=a"], "did you mean 'results'?"),
        (["id="], "id"),
    ],
)
def test_a_wrong_question_is_one_line(argv, said, store, shows):
    store(record(), record(**OTHER))
    code, out, err = shows(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert said.format(path=store.path) in err


def test_an_empty_store_says_so(shows):
    for argv in ([], ["last"]):
        code, _, err = shows(*argv)
        assert (code, err.count("\n")) == (2, 1)
        assert "has no records; run something" in err


def test_a_record_that_is_damaged_inside_is_no_record(store, shows, caplog):
    name, other = store(record(resources={"sm_90": {"spill_bytes": 0}}), record())
    listed = shows()[1]
    assert name not in listed
    assert other in listed
    assert "damaged row on line 1" in caplog.text


def test_ids_reach_hydra_as_they_are():
    assert show.words(["last"]) == ["id=['last']"]
    assert show.words(["1e5", "it's", "json=true"]) == ["json=true", r"id=['1e5','it\'s']"]
    assert show.words(["--cfg", "job"]) == ["--cfg", "job"]


def test_seconds_of_the_parts_of_a_run_are_shown_where_the_record_has_them(store, shows):
    old, new = store(record(), record(seconds={"compile": 1.234, "trials": 20.0}))
    assert "seconds\n" not in shows(old)[1]
    head, *lines = shows(new)[1].partition("\nseconds\n")[2].splitlines()
    assert [head.split(), lines[0].split()] == [["compile", "1.234"], ["trials", "20.0"]]
