"""Two new files are a variant, without any other edit: the sweep finds, compiles, validates and records it."""

import contextlib
import shutil

import pytest

import experiments.run.setup
from common import ROOT
from common.config.cli import run_task
from common.config.resolve import resolve
from common.errors import CompileError
from common.stacks.catalog import read_catalog
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.show.progress import progress

SOURCE = """// Idea        every block takes its rows from the last one up
// Hypothesis  nothing changes
// Overrides   matvec
// Run         python -m experiments variant=last_row_first
#include "common/kernel/decode.cuh"

template <class Base> struct LastRowFirst : Base {
  using Self = typename Base::Self;
  template <class Job, class Emit> static DEVICE void matvec(const Context &, const Job &job, Emit emit) {
    const int parts = job.parts * block_warps;
    for (int i = job.part * block_warps + warp(); i < job.rows; i += parts) {
      const int row = job.rows - 1 - i;
      float sums[Job::matrices];
      for (int m = 0; m < Job::matrices; ++m) sums[m] = FACTOR * dot_row<Self, Job::K>(job.row(m, row), job.x);
      if (lane() == 0) emit(row, sums);
    }
  }
};
"""
YAML = "name: last_row_first\n"

pytestmark = pytest.mark.host


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of the folders that the catalog reads, to which a test can add a variant."""
    for folder in ("conf", "variants"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.setattr(experiments.run.setup, "read_catalog", lambda: read_catalog(tmp_path))
    return tmp_path


def add(root, factor: str) -> None:
    (root / "variants" / "last_row_first.cu").write_text(SOURCE.replace("FACTOR", factor))
    (root / "conf" / "variant" / "last_row_first.yaml").write_text(YAML)


def sweep(root, host_cache, *argv):
    """{variant: row} of `variant=all`, of which only the baseline and the new one are run."""
    rows = {}

    def task(cfg) -> int:
        config = resolve(cfg, root)
        rows.update(dict.fromkeys(stack.name for stack in config.stacks))
        with progress(10) as show:
            setup = Setup(config, show)
            for stack in config.stacks:
                if stack.name in ("baseline", "last_row_first"):
                    under_way = LabStack(setup, stack)
                    with contextlib.suppress(CompileError):
                        under_way.validate()
                    under_way.record()
                    rows[stack.name] = under_way.row
        return 0

    results, cache = root / "records.jsonl", f"cache={host_cache}"
    assert run_task(task, "config", ["variant=all", "device=host", f"results={results}", cache, *argv], root) == 0
    return rows


def test_the_sweep_finds_and_validates_a_new_variant(root, host_cache, seed):
    shipped = set(read_catalog().variants)
    add(root, "1")
    rows = sweep(root, host_cache, f"seed={seed}")
    assert set(rows) == shipped | {"last_row_first"}
    assert {rows[name].verdict for name in ("baseline", "last_row_first")} == {"PASSED"}
    assert rows["last_row_first"].grid_barriers == rows["baseline"].grid_barriers


def test_a_wrong_new_variant_is_a_mismatch(root, host_cache, seed):
    add(root, "1.001f")
    rows = sweep(root, host_cache, f"seed={seed}")
    assert rows["last_row_first"].verdict == "MISMATCH"
    assert rows["last_row_first"].reason.startswith("qkv layer 0")


def test_a_new_variant_that_does_not_compile_is_a_compile_error(root, host_cache, seed):
    add(root, "no_such_name")
    rows = sweep(root, host_cache, f"seed={seed}")
    assert rows["last_row_first"].verdict == "COMPILE_ERROR"
    assert "last_row_first.cu:14" in rows["last_row_first"].reason
