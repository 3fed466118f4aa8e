"""From a run to its results, as a user does it: rows while it runs, one table, and every record to be looked at."""

import io
import json
import re
import shlex
import subprocess
import sys

import pytest
from faulty_root import make_root, rows, start
from processes import HANGS_S

from common import ROOT
from common.record.store import Store
from common.validate.scenarios import scenarios, steps_in_all
from experiments.__main__ import main
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.show import __main__ as show
from experiments.tables.progress import Progress

pytestmark = [pytest.mark.cpu, pytest.mark.covers]
TINY = ["device=ptx", "model=tiny", "timing=none", "archs=[]", "validate=quick"]


@pytest.fixture
def lab(cpu_cache, tmp_path):
    return [*TINY, f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl"]


def test_a_multirun_ends_in_one_table_and_says_each_row_when_it_has_it(lab, tmp_path, capfd, seed):
    assert main(["-m", *lab, "variant=warp_split", "ratio=0:8,2:6", f"seed={seed}"]) == 0
    out, err = capfd.readouterr()
    first = out.split("\n\n")[0]
    assert [line.split("│")[0].strip() for line in first.splitlines() if "PASSED" in line] == [
        "warp_split ratio=0:8",
        "warp_split ratio=2:6",
    ]
    ids = [row["id"] for row in Store(tmp_path / "r.jsonl").records()]
    assert all(name in out.partition("Kept in ")[2] for name in ids)
    said = err.splitlines()
    done = next(at for at, line in enumerate(said) if line.startswith("warp_split ratio=0:8: PASSED, max error"))
    assert any(line.startswith("device ptx") for line in said[done:])  # before the next job began


@pytest.mark.parametrize("quick", [True, False])
def test_the_steps_of_a_validation_are_known_beforehand(tiny, synthetic, seed, quick):
    weights = synthetic(tiny, seed)
    assert steps_in_all(tiny, quick) == sum(start.steps for start in scenarios(tiny, seed, weights, quick))


def test_validation_says_how_far_it_is(configured, cpu_cache, tmp_path, seed):
    class Heard(Progress):
        details: tuple[str, ...] = ()

        def detail(self, text, of=""):
            self.details += (text,)

    config = configured(*TINY, "variant=baseline", f"seed={seed}", f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl")
    show = Heard(io.StringIO())
    assert LabStack(Setup(config, show), config.stacks[0]).validate().passed
    assert [re.match(r"seed 1 of 1, token (\d) of 5: ", text)[1] for text in show.details] == list("12345")


def test_a_record_can_be_looked_at_and_its_command_makes_it_again(lab, tmp_path, capfd, seed):
    """The printed command, run as it stands, keeps a second record of the same question."""

    def run(*words: str) -> str:
        return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True).stdout

    formats = ["format=int4:32:zeros", "head_format=int8"]
    argv = [*lab, "variant=atomic_barrier", f"seed={seed}", "blocks_per_sm=2", "model.positions=40", "blocks=3"]
    out = run("experiments", *argv, *formats)
    (first,) = Store(tmp_path / "r.jsonl").records()
    closing = next(line for line in out.splitlines() if "python -m experiments.show" in line)
    assert show.main(shlex.split(closing.partition("python -m experiments.show")[2])) == 0
    shown = capfd.readouterr().out
    assert first["id"] in shown
    run(*shlex.split(shown.splitlines()[-1].removeprefix("Reproduce: python -m ")), *lab[-2:])
    _, second = Store(tmp_path / "r.jsonl").records()
    assert [second[name] for name in ("key", "asked", "counts", "verdict")] == [
        first[name] for name in ("key", "asked", "counts", "verdict")
    ]


def test_an_experiment_says_where_its_table_is_kept(lab, tmp_path, capfd, seed):
    argv = [word for word in lab if not word.startswith("timing") and "quick" not in word]
    argv = ["experiment=roofline", *argv, "model=qwen3_0_6b"]
    argv += [f"seed={seed}"]
    assert main(argv) == 0
    out = capfd.readouterr().out
    kept = Store(tmp_path / "r.jsonl").records()[-1]["id"]
    assert f"Kept in {tmp_path}/r.jsonl: {kept}" in out
    assert show.main(["last", lab[-1]]) == 0
    assert out.splitlines()[0] in capfd.readouterr().out
    assert main([*argv, "json=true"]) == 0
    for line in capfd.readouterr().out.splitlines():
        json.loads(line)


def test_a_kernel_that_hangs_is_told_with_the_command_that_shows_its_report(tmp_path, cpu_cache):
    root = make_root(tmp_path / "lab", "deadlocks")
    out, _ = start(root, cpu_cache, "variant=deadlocks").communicate(timeout=HANGS_S)
    (row,) = rows(root)
    line = next(line for line in out.splitlines() if line.startswith("deadlocks: HUNG "))
    words = shlex.split(line.partition("; python -m ")[2])
    shown = subprocess.run([sys.executable, "-m", *words], cwd=root, capture_output=True, text=True, timeout=HANGS_S)
    assert shown.returncode == 0, shown.stderr
    assert "common/kernel/barrier.cuh" in row["report"]  # where blocks wait
    assert all(f"  {text}\n" in shown.stdout for text in row["report"].splitlines())
