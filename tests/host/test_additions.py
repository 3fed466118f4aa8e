"""What a contributor touches to add a variant (2 files), a knob (2), a model's shape (1) and an experiment (2)."""

import pytest
from scratch import Scratch

from common.record.store import Store

pytestmark = pytest.mark.host
MIXIN = """// Idea        activations are read as they are
// Hypothesis  nothing changes
// Overrides   activations
// Run         python -m experiments variant=as_they_are
#include "common/kernel/decode.cuh"

template <class Base> struct AsTheyAre : Base {
  template <Stage S> static DEVICE const float *activations(const Context &c, int layer) { return tap<S>(c, layer); }
};
"""
SHAPE = """name: mine
hidden: 32
intermediate: 72
layers: 1
heads: 2
kv_heads: 1
head_dim: 16
vocab: 101
positions: 16
rope_theta: 1e4
rms_eps: 1e-6
tied: false
"""
EXPERIMENT = '''"""Names of the stacks of a run."""

import pandas as pd

from experiments.experiment import Experiment
from experiments.show.result_table import COUNTED, ResultTable


def ask(experiment: Experiment) -> ResultTable:
    """One row for each stack."""
    rows = [{"variant": stack.name, "barriers": 1} for stack in experiment.config.stacks]
    return ResultTable("mine", "which stacks there are", pd.DataFrame(rows), COUNTED, [])
'''


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path)


def test_a_variant_a_knob_and_a_shape(scratch, host_cache, seed):
    variant = {"variants/as_they_are.cu": MIXIN, "conf/variant/as_they_are.yaml": "name: as_they_are\n"}
    shape = {"conf/model/mine.yaml": SHAPE}
    for name, text in (variant | shape).items():
        scratch.add(name, text)
    knob = {"variants/smem_cache.cu", "conf/variant/smem_cache.yaml"}
    spec = "knobs:\n  spare: {kind: int, default: 1, minimum: 1, maximum: 9, help: nothing}\n"
    scratch.edit("conf/variant/smem_cache.yaml", "name: smem_cache\n", f"name: smem_cache\n{spec}")
    scratch.edit("variants/smem_cache.cu", "vector[longest];", "vector[longest + 4 * knob::smem_cache::spare];")
    assert scratch.touched() == variant.keys() | shape.keys() | knob
    done = scratch.run(host_cache, "stack=[as_they_are,smem_cache]", "spare=3", "model=mine", f"seed={seed}")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = (row for row in Store(scratch.path / "records.jsonl").records() if row["kind"] == "run")
    assert (row["status"], row["model"]["name"], row["knobs"]["smem_cache"]) == ("PASSED", "mine", {"spare": 3})


def test_an_experiment(scratch, host_cache):
    files = {
        "experiments/suite/mine.py": EXPERIMENT,
        "conf/experiment/mine.yaml": "# @package _global_\n# Which stacks there are.\n# Run   python -m experiments "
        "experiment=mine\ntask: mine\n",
    }
    for name, text in files.items():
        scratch.add(name, text)
    assert scratch.touched() == files.keys()
    done = scratch.run(host_cache, "experiment=mine", "variant=vec128")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "vec128" in done.stdout
