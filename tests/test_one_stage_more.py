"""A stage renamed and a stage added: only its definition, its computation and its reference are edited.

One cache serves the lab before and after: no object that was compiled for other stages may be used.
"""

import re

import pytest
from scratch import Scratch

from common.record.store import Store

pytestmark = pytest.mark.cpu
DEFINITION, REFERENCE = "common/model/stages.py", "common/validate/reference.py"
STEP, INPUTS = "common/kernel/decode.cuh", "common/kernel/matvec.cuh"
TRITON = "experiments/engines/triton_arm/steps.py"
TINY = ("model=tiny", "validate=quick")


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path)


def validated(scratch, cpu_cache, *argv):
    """The records of a run of the scratch lab."""
    done = scratch.run(cpu_cache, *TINY, *argv)
    assert done.returncode in (0, 1), done.stderr
    return [row for row in Store(scratch.path / "records.jsonl").records() if row["kind"] == "run"]


def test_a_renamed_stage(scratch, cpu_cache, seed):
    """A file that names the stage is part of its definition, computation, reference or probe, or describes kernels."""
    old = re.compile(r"\bgate_up\b")
    # Faults of the validator's own test quote lines of the kernel, as tests do.
    files = [path for path in scratch.path.rglob("*.*") if path.is_file() and "faults" not in path.parts]
    for path in files:
        if path.suffix in (".py", ".cuh", ".cu", ".hpp", ".cpp", ".yaml") and old.search(text := path.read_text()):
            path.write_text(old.sub("mlp_gate", text))
    names = ("graph", "l2_prefetch", "productive_spin", "by_value", "bulk_ring", "columns", "stream_kv")
    computation = {STEP, INPUTS, *(f"variants/{name}.cu" for name in names)}
    probe = {f"experiments/timing/rounds.{suffix}" for suffix in ("cu", "py")}
    described = {name for name in scratch.touched() if name.startswith(("conf/variant/",))}
    assert scratch.touched() - described == {DEFINITION, REFERENCE, TRITON, *computation, *probe}
    rows = validated(scratch, cpu_cache, "stack=[smem_cache,atomic_barrier,productive_spin]", f"seed={seed}")
    assert [row["status"] for row in rows] == ["PASSED"]
    assert "mlp_gate" in rows[0]["counts"]
    assert "gate_up" not in rows[0]["counts"]


def add_stage(scratch, factor: str) -> None:
    """`mlp_scale`, between gate_up and down: its input times `factor`."""
    scratch.edit(
        DEFINITION, '    "down": Stage(', '    "mlp_scale": Stage(lambda m: (m.intermediate,)),\n    "down": Stage('
    )
    scratch.edit(
        STEP,
        "  static DEVICE void down(",
        f"""  static DEVICE void mlp_scale(const Context &c, int layer) {{
    for (int i = blockIdx.x * block_threads + threadIdx.x; i < model::intermediate;
         i += gridDim.x * block_threads)
      tap<Stage::mlp_scale>(c, layer)[i] = {factor} * tap<Stage::gate_up>(c, layer)[i];
  }}

  static DEVICE void down(""",
    )
    scratch.edit(INPUTS, "s == Stage::down    ? Stage::gate_up", "s == Stage::down    ? Stage::mlp_scale")


@pytest.mark.parametrize(("factor", "status"), [("1.0f", "PASSED"), ("1.001f", "MISMATCH")])
def test_an_added_stage(scratch, cpu_cache, seed, factor, status):
    add_stage(scratch, factor)
    reference = '            x = tap["down", layer]'
    scratch.edit(REFERENCE, reference, f'            gate_up = tap["mlp_scale", layer] = gate_up\n{reference}')
    assert scratch.touched() == {DEFINITION, STEP, INPUTS, REFERENCE}
    (row,) = validated(scratch, cpu_cache, "variant=baseline", f"seed={seed}")
    assert row["status"] == status, row
    if status == "PASSED":
        assert row["counts"]["mlp_scale"]["grid_barriers"] == 2  # one in each layer of `tiny`
    else:
        assert row["verdict"]["mismatch"]["stage"] == "mlp_scale"


def test_an_added_stage_without_a_reference_is_refused(scratch, cpu_cache):
    add_stage(scratch, "1.0f")
    done = scratch.run(cpu_cache, *TINY, "variant=baseline")
    assert "stage mlp_scale leaves a tap and has no reference" in done.stdout + done.stderr


def test_a_stage_without_a_tap_cannot_be_read(scratch, cpu_cache):
    scratch.edit(STEP, "residual(c, layer) : tap<Stage::o_proj>", "residual(c, layer) : tap<Stage::argmax>")
    (row,) = validated(scratch, cpu_cache, "variant=baseline")
    assert row["status"] == "COMPILE_ERROR"
    assert "Tap<" in str(row), row
