"""Resuming an interrupted sweep."""

import pytest
from faulty_root import make_root, results, rows, start
from processes import HANGS_S

from tests.strength.soak.kills import kills

pytestmark = pytest.mark.cpu


def run(root, cache, *argv):
    process = start(root, cache, *argv)
    out, err = process.communicate(timeout=HANGS_S)
    return process.returncode, out, err


@pytest.fixture
def root(tmp_path, one_core):
    return make_root(tmp_path / "lab")


def test_resume_runs_only_what_is_missing(root, cpu_cache, seed):
    assert run(root, cpu_cache, f"seed={seed}")[0] == 0
    first = rows(root)
    code, out, err = run(root, cpu_cache, "resume=true")  # with the seed of the last run
    assert (code, rows(root)) == (0, first), err
    assert "baseline" in out
    assert "atomic_barrier" in out
    lines = results(root).read_text().splitlines(keepends=True)
    gone = next(row for row in first if row["variant"] == "baseline")["id"]
    results(root).write_text("".join(line for line in lines if gone not in line))
    assert run(root, cpu_cache, "resume=true")[0] == 0
    again = {row["variant"]: row for row in rows(root)}
    assert len(rows(root)) == 2
    assert again["baseline"]["id"] != gone
    assert again["baseline"]["key"] == next(row["key"] for row in first if row["id"] == gone)


def test_a_sweep_killed_at_random_instants_loses_nothing(root, cpu_cache, tmp_path, seed):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").symlink_to(cpu_cache)
    found = kills(2, tmp_path, seed, root, longest=6)
    assert found.parents + found.children == 2
    assert (found.lost, found.torn, found.twice, found.different) == (0, 0, 0, []), seed
