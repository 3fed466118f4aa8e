"""Coverage of kernels on the PTX device, against lines and branches counted by hand."""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from bare_kernel import bare_kernel

from common.model.layout import Layout
from common.model.shapes import Model
from common.record.store import Store
from tests.strength.coverage.__main__ import main
from tests.strength.coverage.covered import CoveredDevice, Executed

THREADS = 64


@pytest.fixture
def run(cpu_cache: Path, tiny: Model):
    """run(body, times): {line of the body: counts}, after a block of 64 threads has run it that often."""

    def run_(body: str, times: int = 1, variants: tuple[str, ...] = ()) -> dict[int, Executed]:
        device, layout = CoveredDevice(variants, cpu_cache), Layout(tiny)
        program = device.compile(bare_kernel(tiny, body, threads=THREADS))
        weights = torch.ones(layout.weights_size).bfloat16()
        for _ in range(times):
            with closing(device.session(program, weights, 1)) as session:
                session.reset([1], 0)
                session.run()
        found: dict[int, Executed] = {}
        for place, one in device.places.items():
            for file, line in place:
                if file.endswith("test"):
                    found.setdefault(line, Executed()).add(one.threads, one.straight, one.jumped)
        return found

    return run_


def ways(one: Executed) -> list[int]:
    """Threads of each way of a branch; the compiler decides which one jumps."""
    return sorted([one.straight, one.jumped])


def test_lines_and_branches_are_counted_over_sessions(run):
    body = "if (threadIdx.x < 10)\n  atomicAdd(out, 5);\nif (blockIdx.x)\n  atomicAdd(out, 2);"
    done = run(body, times=3)
    assert ways(done[1]) == [3 * 10, 3 * 54]
    assert done[2].threads > 0
    assert done[2].threads % (3 * 10) == 0  # for each of its rows
    assert ways(done[3]) == [0, 3 * 64]
    assert done[4].threads == 0


def test_a_loop_goes_back_and_ends(run):
    """Four turns of 64 threads: three times back, and once on."""
    done = run("ROLLED\nfor (int i = 0; i < 4; ++i)\n  atomicAdd(out, 1);")
    assert ways(done[2]) == [64, 3 * 64]
    assert done[3].threads % (4 * 64) == 0


def test_kernels_of_another_stack_are_not_counted(run):
    assert run("atomicAdd(out, 1);", variants=("vec128",)) == {}


def test_a_command_leaves_a_table_and_a_record(cpu_cache, tmp_path, capsys):
    given = ["variant=redundant_rmsnorm", "model=tiny", "validate=quick", f"cache={cpu_cache}"]
    results = tmp_path / "records.jsonl"
    assert main([*given, f"results={results}"]) == 0
    (record,) = Store(results).records()  # the table's only: the launches are not those that a run validates
    assert (record["kind"], record["stacks"]) == ("coverage", ["redundant_rmsnorm"])
    rows = {row["file"]: row for row in record["table"]}
    assert rows["variants/redundant_rmsnorm.cu"]["lines %"] == 100
    assert 0 < rows["all"]["branches %"] < 100  # a loop over rows of a tiny model has no second turn
    assert "common/kernel/norm.cuh" in capsys.readouterr().out
