"""PTX that Triton made (tests/samples/triton_kernels.py): right to the rounding of fp32, and without a race."""

import random
from pathlib import Path

import numpy as np
import pytest

from common.config.section import Section
from common.devices.ptx.library import library
from common.devices.ptx.program import Machine
from experiments.ptx.launch import launched as launch
from experiments.ptx.launch_file import Settings

SAMPLES = Path(__file__).parents[1] / "samples"
ULP = 2.0**-23
SCRATCH = [{"type": "u64", "value": 0}] * 2  # pointers that Triton adds, for memory that these kernels do not need


@pytest.fixture
def launched(cpu_cache, tmp_path):
    """launched(kernel, grid, threads, shared, arguments, seed, change): the outcome, and each array in float64."""
    machine = Machine(library(cpu_cache))

    def launched_(kernel, grid, threads, shared, given, seed, change=lambda text: text):
        file = tmp_path / "kernel.ptx"
        file.write_text(change((SAMPLES / f"{kernel}.ptx").read_text()))
        values = {"file": str(file), "grid": list(grid), "block": threads, "shared": shared, "seed": seed,
                  "arguments": [*given, *SCRATCH], "arrays": [], "include": [], "races": True, "timeout_s": 60,
                  "cache": str(cpu_cache), "cache_limit_gb": 1, "json": False, "debug": False}  # fmt: skip
        ended = launch(machine, Settings(**Section(values).fields(Settings)), None)
        return ended, [one.numbers.astype(np.float64) for one in ended.given.arrays]

    return launched_


def array(kind, *shape, fill="random"):
    return {"type": kind, "shape": list(shape), "fill": fill}


def number(value):
    return {"type": "s32", "value": value}


@pytest.mark.cpu
def test_a_matrix_times_a_vector(launched, seed):
    rows, columns = random.Random(seed).randrange(1, 9), 16 * random.Random(seed).randrange(1, 40)
    given = [array("bf16", rows, columns), array("f32", columns), array("f32", rows, fill="unwritten"), number(columns)]
    ended, (w, x, y) = launched("matvec", (rows, 1, 1), 128, 16, given, seed)
    assert ended.right
    assert (abs(y - w @ x) <= 12 * ULP * (abs(w) @ abs(x))).all()  # a lane adds up to 5, then 7 exchanges


@pytest.mark.cpu
def test_softmax(launched, seed):
    rows, columns = 3, 16 * random.Random(seed).randrange(1, 17)
    given = [array("f32", rows, columns), array("f32", rows, columns, fill="unwritten"), number(columns)]
    ended, (x, y) = launched("softmax", (rows, 1, 1), 128, 16, given, seed)
    assert ended.right
    weight = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(y, weight / weight.sum(1, keepdims=True), rtol=32 * ULP, atol=0)


@pytest.mark.cpu
def test_a_product_of_matrices_by_tensor_cores_below_sm_90(launched, seed):
    rows, columns, inner = (32 * random.Random(seed + at).randrange(1, 4) for at in range(3))
    given = [array("bf16", rows, inner), array("bf16", inner, columns), array("f32", rows, columns, fill="unwritten")]
    grid = (rows // 32, columns // 32, 1)
    ended, (a, b, c) = launched("product", grid, 64, 8192, [*given, number(columns), number(inner)], seed)
    assert ended.right
    assert (abs(c - a @ b) <= inner * ULP * (abs(a) @ abs(b))).all()


@pytest.mark.cpu
@pytest.mark.parametrize("kernel", ["matvec", "softmax"])
def test_a_barrier_left_out_is_a_race(launched, kernel, seed):
    given = [array("bf16", 2, 64), array("f32", 64), array("f32", 2), number(64)]
    given = given if kernel == "matvec" else [array("f32", 2, 64), array("f32", 2, 64), number(64)]
    ended, _ = launched(kernel, (2, 1, 1), 128, 16, given, seed, lambda text: text.replace("bar.sync", "// bar.sync"))
    assert (ended.end, "nothing orders" in ended.report) == ("race", True)
