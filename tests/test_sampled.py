"""Sample and seeds of the tests: the same for the same commit, others for another one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_checkout import commit, git
from sampled import tree

READ = "import sampled; print(sampled.SAMPLE, sampled.seed_for('a'), sampled.seed_for('b'))"


@pytest.fixture
def checkout(tmp_path) -> Path:
    (tmp_path / "a.txt").write_text("one")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def test_the_sample_is_named_after_the_content_of_the_commit(checkout):
    first = tree(checkout)
    assert git(checkout, "write-tree").startswith(first)
    git(checkout, "commit", "-q", "--amend", "-m", "another message, at another time")
    assert tree(checkout) == first
    (checkout / "a.txt").write_text("two")
    assert tree(checkout) == first
    commit(checkout)
    assert tree(checkout) != first
    assert len(tree(checkout)) == 12


def sample(**given: str) -> list[str]:
    """Name and two seeds in a new process; what this run has drawn is no part of its environment."""
    clean = {key: value for key, value in os.environ.items() if key not in ("LAB_SAMPLE", "LAB_SEED")}
    paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parent.parent)))
    argv, env = [sys.executable, "-c", READ], clean | {"PYTHONPATH": paths} | given
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split()


def test_another_process_draws_the_same_part_and_the_same_seeds():
    name, *seeds = sample()
    assert sample() == [name, *seeds] == sample(LAB_SAMPLE=name)
    other = sample(LAB_SAMPLE="other")
    assert len({*seeds, *other[1:]}) == 4
    assert sample(LAB_SEED="7", LAB_SAMPLE="other") == ["other", "7", "7"]
