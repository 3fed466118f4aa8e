"""Refusal of what could never work before any wait: sizes beyond this machine, pipes in place of files."""

import re
import shutil
from dataclasses import replace

import pytest
from permissions import without_root_rights

from common import ROOT
from common.config.cli import run_task
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import LARGEST
from common.model.weights import load
from common.record.store import Store
from experiments import generate
from experiments.experiment import Experiment
from experiments.suite import ablation
from experiments.tables.progress import Quiet
from profiles import target


@pytest.mark.parametrize("field", ["positions", "layers", "vocab", "hidden", "head_dim", "heads"])
def test_shapes_that_are_no_c_int(tiny, field):
    with pytest.raises(LabError, match=rf"{field} is {8 * LARGEST}; give an integer from 1 to {LARGEST}"):
        replace(tiny, **{field: 8 * LARGEST})


@pytest.mark.timeout(100)
@pytest.mark.parametrize("more", [{"layers": 10**9}, {"positions": LARGEST}, {"vocab": LARGEST}])
def test_a_model_larger_than_this_machine(tiny, tmp_path, more, monkeypatch):
    monkeypatch.setattr("common.model.layout.os.sysconf", lambda name: 10**5)  # 10 GB
    with pytest.raises(LabError, match=r"model tiny needs [\d,.]+ GB, .* and this machine has 10\.0 GB of memory"):
        load("synthetic", replace(tiny, **more), None, tmp_path)
    assert not list(tmp_path.iterdir())


def test_memory_is_that_of_all_buffers(tiny, monkeypatch):
    layout = Layout(tiny)
    for missing in (0, 1):
        memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": layout.bytes - missing}
        monkeypatch.setattr("common.model.layout.os.sysconf", memory.get)
        if missing:
            with pytest.raises(LabError, match="GB of memory"):
                layout.check_memory()
        else:
            layout.check_memory()


@pytest.mark.timeout(100)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev"])
def test_what_is_no_regular_file_holds_no_records(device):
    for use in (Store(device).check, Store(device).records, lambda: Store(device).append({})):
        with pytest.raises(LabError, match=f"{device} is no regular file, and rows must be read again; choose another"):
            use()


RUNS = ("timing=full", "archs=[sm_80]", "budget_s=5", "row_s=5", "timeout_s=9")


@pytest.mark.parametrize("main", [lambda argv: generate.main(["prompt_ids=[1]", *argv]), target.main])
@pytest.mark.parametrize("key", ["experiment=positions", "experiment=validate", "resume=true", *RUNS])
def test_keys_of_runs_are_refused_where_they_have_no_effect(main, key, tmp_path, capsys):
    more = [] if "experiment" in key else ["variant=baseline"]
    assert main([key, "device=ptx", f"results={tmp_path / 'r.jsonl'}", *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {re.split('[.=]', key)[0]}= has no effect on a ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("task", ["counts", "sass"])
@pytest.mark.parametrize("key", ["timing=full", "timing.steps=9", "validate.seeds=2", "blocks=3"])
def test_an_experiment_that_runs_no_kernel_has_no_settings_of_it(task, key, configured):
    with pytest.raises(LabError, match=rf"^{re.split('[.=]', key)[0]}= has no effect on experiment={task}; leave it"):
        configured(f"experiment={task}", key)


@pytest.mark.parametrize("key", ["validate=full", "validate.seeds=2"])
def test_what_only_decodes_does_not_validate(key, capsys):
    assert generate.main(["prompt_ids=[1]", "device=ptx", key]) == 2
    assert capsys.readouterr().err.startswith("error: validate= has no effect on a generation; ")


def test_a_multirun_in_a_checkout_that_cannot_be_written(tmp_path, capsys):
    root = tmp_path / "lab"
    for name in ("conf", "variants"):
        shutil.copytree(ROOT / name, root / name)
    root.chmod(0o555)
    jobs = []

    def run(*argv: str) -> int:
        with without_root_rights():
            return run_task(lambda cfg: jobs.append(cfg) or 0, "config", ["-m", "threads=32,64", *argv], root)

    assert run(f"results={tmp_path / 'mine' / 'r.jsonl'}") == 0
    assert len(jobs) == 2
    assert run() == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the command cannot go on: Permission denied, {root}/experiments; ")
    assert "results=FILE" in error


def test_a_position_outside_the_cache_is_refused_before_the_rows(configured):
    given = ("experiment=ablation", "model=tiny", "options.position=64", "timing.positions=[1]")
    experiment = Experiment(configured(*given), Quiet())
    with pytest.raises(LabError, match=r"options.position=64 is not a whole number in 0\.\.63"):
        ablation.ask(experiment)
