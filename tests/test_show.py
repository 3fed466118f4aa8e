"""Results as a user looks at them: names that differ, complete JSON, one table of several jobs, where to go on."""

import io
from shlex import quote, split

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from made_records import MODEL, run
from made_records import shown_run as row
from omegaconf import OmegaConf
from rich.console import Console

from common import ROOT
from experiments.tables.commands import DEFAULT, closing_lines, relative, show_command
from experiments.tables.row import count, finished, label, labels
from experiments.tables.run_table import Job, show_jobs, show_tables


@pytest.mark.parametrize(
    ("variant", "stack", "knobs", "wanted"),
    [
        ("warp_split", ["warp_split"], {"warp_split": {"producers": 2, "consumers": 6}}, "warp_split ratio=2:6"),
        ("vec128", ["vec128"], {"vec128": {"l1": "default"}}, "vec128 l1=default"),
        ("megaqwen", ["vec128"], {"vec128": {"l1": "default"}}, "megaqwen"),  # the default of a variant inside it
        ("megaqwen", ["vec128"], {"vec128": {"l1": "no_allocate"}}, "megaqwen l1=no_allocate"),
        ("persistent", ["vec128"], {"vec128": {"l1": "no_allocate"}}, "persistent"),  # what its own yaml says
        ("persistent", ["vec128"], {"vec128": {"l1": "default"}}, "persistent l1=default"),
        ("gone", ["gone"], {"gone": {"depth": 3}}, "gone depth=3"),  # no longer in the catalog
    ],
)
def test_a_name_carries_its_knobs(variant, stack, knobs, wanted):
    assert label(run(variant, stack, 1, knobs=knobs)) == wanted


def test_counts_of_no_stage_are_zeros_and_no_counts_are_unknown():
    fields = ("grid_barriers", "copied_async", "prefetched", "activations_32bit")
    assert [count(row(counts={"embed": {}}), name) for name in fields] == [0, 0, 0, 0]
    assert [count(row(counts={}), name) for name in fields] == [None] * 4
    copies = {"qkv": {"copied_async": 16, "copied_bulk": 512}, "down": {"copied_bulk": 1024}}
    stream = io.StringIO()
    show_tables([row(counts=copies)], "here", "ptx", Console(file=stream, width=200))
    assert "1.55 kB" in stream.getvalue(), "the bytes of a ring, in bulk or not"


@pytest.mark.parametrize(
    ("other", "added"),
    [
        ({"producers": 0}, ""),
        ({"threads": 512}, "threads=512"),
        ({"blocks": 4}, "blocks=4"),
        ({"model": MODEL | {"name": "odd"}}, "model=odd"),
        ({"seed": 6}, "seed=6"),
        ({"seed": 6, "blocks": None}, "seed=6"),  # unknown where a run did not choose it
        ({"device": {"device": "cuda", "gpu": "A GPU", "compiler": "NVRTC 13"}}, "device=cuda"),
        ({"when": 7}, "record=run-warp_split-0007"),  # one run, repeated
    ],
)
def test_no_two_rows_look_equal(other, added):
    first, second = labels([row(), row(**other)])
    assert first != second
    assert second.endswith(added)


def test_what_sets_no_rows_apart_is_not_said():
    assert labels([row(), row(producers=0, seed=6)]) == ["warp_split ratio=2:6", "warp_split ratio=0:8"]


def test_a_stack_that_has_ended_is_one_line():
    assert finished(row()) == (
        "warp_split ratio=2:6: PASSED, max error 2.0e-07 / 1.6e-06 allowed, 19 grid barriers a token"
    )
    assert finished(row(status="HUNG", reason="no block went on; see the report")) == (
        "warp_split ratio=2:6: HUNG no block went on; see the report"
    )


def test_what_failed_is_named_with_the_command_that_shows_it(tmp_path):
    stream = io.StringIO()
    hung = row(status="HUNG", reason="see the report", results=str(tmp_path / "r.jsonl"))
    show_tables([hung], "here", "cuda", Console(file=stream, width=200))
    command = f"python -m experiments.show run-warp_split-0000 {quote(f'results={tmp_path}/r.jsonl')}"
    assert stream.getvalue().splitlines()[-1] == f"warp_split ratio=2:6: HUNG see the report; {command}"


def test_the_default_store_needs_no_name(monkeypatch, tmp_path):
    text = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "config.yaml"))["results"]
    assert text == f"${{root:}}/{DEFAULT}"
    assert show_command("last", ROOT / DEFAULT) == "python -m experiments.show last"
    monkeypatch.chdir(tmp_path)
    assert show_command("last", tmp_path / "a b.jsonl") == "python -m experiments.show last 'results=a b.jsonl'"
    for name in ("a,b.jsonl", "\u00e4.jsonl", "d'or (1).jsonl"):  # what is printed can be given
        override = split(show_command("last", tmp_path / name))[-1]
        assert OverridesParser.create().parse_override(override).value() == name
    assert relative(ROOT / DEFAULT) == str(ROOT / DEFAULT)


@pytest.mark.parametrize("count", [1, 2, 17])
def test_a_run_closes_with_its_records_and_what_comes_next(count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = [f"id-{number}" for number in range(count)]
    kept, *commands = closing_lines(ids, tmp_path / "r.jsonl").splitlines()
    assert kept.startswith("Kept in r.jsonl: ")
    assert ids[0] in kept
    assert ids[-1] in kept
    assert any(f"python -m experiments.show id-{count - 1} results=r.jsonl" in line for line in commands)
    assert len(commands) == 1


@pytest.fixture
def job(configured, tmp_path):
    def make(*overrides, **more):
        config = configured(f"results={tmp_path}/r.jsonl", "seed=5", *overrides)
        return Job([row(**more, results=str(config.results))], "tiny", config)

    return make


def test_the_jobs_of_a_multirun_end_in_one_table_under_what_they_share(job, capsys):
    show_jobs([job("seed=1", producers=0), job("seed=2")])
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "tiny on ptx (requested), weights synthetic"
    first = out.split("\n\n")[0]
    assert "warp_split ratio=0:8" in first
    assert "warp_split ratio=2:6" in first
    assert out.count("Kept in ") == 1
    show_jobs([])
    assert capsys.readouterr().out == ""
