"""Fixtures of this folder's tests: kernels, and the command `python -m experiments.ptx` in this process."""

import pytest
from kernels import alone, baseline, launch, open_session, proved, same_in_any_order, synthetic  # noqa: F401

from experiments.ptx.__main__ import main


@pytest.fixture
def command(tmp_path, cpu_cache, capfd, monkeypatch):
    """command(*words): exit code and both streams, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command_(*words):
        code = main([*words, f"cache={cpu_cache}"])
        return code, *capfd.readouterr()

    return command_
