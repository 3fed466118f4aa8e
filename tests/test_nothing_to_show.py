"""A request that leaves nothing to run, to time or to compare is refused in one line, before any work is done."""

from dataclasses import replace

import pytest

from common.config.cli import run_task
from common.config.device_choice import DeviceChoice
from common.config.resolve import check_positions
from common.errors import LabError
from experiments.__main__ import main

pytestmark = pytest.mark.covers


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["experiment=positions", "options.positions=[99999]"], "options.positions: none of [99999] is in 0..16447"),
        (["experiment=positions", "options.positions=[]"], "is an empty list"),
    ],
)
def test_experiments_without_a_row(argv, said, tmp_path, capsys):
    assert main([*argv, "device=ptx", f"results={tmp_path / 'r.jsonl'}", f"cache={tmp_path}"]) == 2
    captured = capsys.readouterr()
    errors = [line for line in captured.err.splitlines() if not line.startswith("experiment ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert said in errors[0]
    assert captured.out == ""
    assert not (tmp_path / "r.jsonl").exists() or not (tmp_path / "r.jsonl").read_text()


def test_a_sweep_over_nothing_is_said(capsys):
    argv = ["variant=glob(nope*)", "-m", "device=ptx"]
    assert run_task(lambda cfg: pytest.fail("ran"), "config", argv) == 0
    assert capsys.readouterr().err.startswith("note: no job ran")


def test_a_ladder_beyond_the_cache_times_nothing(configured):
    config = configured("model=tiny", "timing.ladder=[64,100]")  # a CPU times nothing anyway
    on_gpu = replace(config, device=DeviceChoice("cuda", "a GPU"))
    with pytest.raises(LabError, match=r"timing\.ladder: none of \[64, 100\] is in 0\.\.63"):
        check_positions(on_gpu, config.model)
    check_positions(replace(on_gpu, timing=replace(config.timing, ladder=(63, 64))), config.model)
