"""nsys and ncu on a GPU: each produces a table with the decoded kernel."""

import shutil

import pytest

from profiles.__main__ import main

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_the_tool_finds_the_kernel(tmp_path, profilers, tool, capfd):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    code = main([f"tool={tool}", "variant=baseline", "model=tiny", "device=cuda", f"results={tmp_path}/records.jsonl"])
    out, err = capfd.readouterr()
    if "for administrators" in err:
        pytest.skip(f"{tool} may not read the GPU's counters here")
    assert code == 0, err
    assert "decode" in out
