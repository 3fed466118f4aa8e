"""Two new files are a variant, with no edit anywhere: the sweep finds it, compiles it, proves it and records it."""

import shutil

import pytest

import experiments.run
from common.catalog import ROOT, read_catalog
from common.cli import launch
from common.config import resolve
from experiments.progress import progress
from experiments.run import Case, compile_stack, prepare, record, validate_stack

SOURCE = """// Idea        every block takes its rows from the last one up
// Run         python -m experiments variant=last_row_first
#include "common/device/decode.cuh"

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
YAML = """# @package _global_
variant:
  name: last_row_first
  idea: every block takes its rows from the last one up
  hypothesis: nothing changes
  overrides: [qkv, o_proj, gate_up, down, lm_head]
  min_arch: 75
"""

pytestmark = pytest.mark.host


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of what the catalog reads: all that there is, and room for more."""
    for folder in ("conf", "variants"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.setattr(experiments.run, "read_catalog", lambda: read_catalog(tmp_path))
    return tmp_path


def add(root, factor: str) -> None:
    (root / "variants" / "last_row_first.cu").write_text(SOURCE.replace("FACTOR", factor))
    (root / "conf" / "variant" / "last_row_first.yaml").write_text(YAML)


def sweep(root, host_cache, *argv):
    """{variant: row} of `variant=all`, of which only the baseline and the new one are carried out."""
    rows = {}

    def task(cfg) -> int:
        config = resolve(cfg, root)
        rows.update(dict.fromkeys(stack.name for stack in config.stacks))
        with progress(10) as show:
            lab = prepare(config, show)
            for stack in config.stacks:
                if stack.name in ("baseline", "last_row_first"):
                    rows[stack.name] = record(lab, validate_stack(lab, compile_stack(lab, Case(stack))))
        return 0

    results, cache = root / "records.jsonl", f"cache={host_cache}"
    assert launch(task, "config", ["variant=all", "device=host", f"results={results}", cache, *argv], root) == 0
    return rows


def test_the_sweep_finds_and_proves_it(root, host_cache, seed):
    shipped = set(read_catalog().variants)
    add(root, "1")
    rows = sweep(root, host_cache, f"seed={seed}")
    assert set(rows) == shipped | {"last_row_first"}
    assert {rows[name].verdict for name in ("baseline", "last_row_first")} == {"PASSED"}
    assert rows["last_row_first"].barriers == rows["baseline"].barriers


def test_and_says_so_when_it_is_wrong(root, host_cache, seed):
    add(root, "1.001f")
    rows = sweep(root, host_cache, f"seed={seed}")
    assert rows["last_row_first"].verdict == "MISMATCH"
    assert rows["last_row_first"].reason.startswith("qkv layer 0")


def test_and_names_what_does_not_compile(root, host_cache, seed):
    add(root, "no_such_name")
    rows = sweep(root, host_cache, f"seed={seed}")
    assert rows["last_row_first"].verdict == "COMPILE_ERROR"
    assert "last_row_first.cu:12" in rows["last_row_first"].reason
