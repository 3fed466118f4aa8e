"""The tour of docs/: a notebook that Jupyter executes from top to bottom, on a CPU with the tiny model."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from processes import HANGS_S

from common import ROOT

pytestmark = pytest.mark.cpu
TOUR = ROOT / "docs" / "tour.ipynb"
NAMES = ["baseline", "redundant_rmsnorm", "head_split", "vec128", "cp_async", "persistent"]


def test_it_is_committed_without_outputs():
    tour = json.loads(TOUR.read_text())
    for cell in tour["cells"]:
        assert cell["metadata"] == {}, cell["id"]
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]
    assert tour["metadata"]["language_info"] == {"name": "python"}, "a version of Python is one machine's"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory, cpu_cache: Path) -> dict[str, list[Any]]:
    """The outputs of each code cell by its id, in a kernel that finds no GPU and shares the tests' compiled kernels."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed; it comes with the dev extra")
    import nbformat

    folder = tmp_path_factory.mktemp("tour")
    cpu_cache.mkdir(exist_ok=True)
    (folder / "megakernel-lab").symlink_to(cpu_cache)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        patch.setenv("MPLCONFIGDIR", str(cpu_cache / "matplotlib"))  # its list of fonts takes half a second
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        tour = nbformat.read(TOUR, as_version=nbformat.NO_CONVERT)
        nbformat.validate(tour)
        client = nbclient.NotebookClient(tour, timeout=HANGS_S, resources={"metadata": {"path": str(folder)}})
        client.execute()  # raises for a cell that ends with an error
    return {cell["id"]: cell["outputs"] for cell in tour["cells"] if cell["cell_type"] == "code"}


def text(outputs: list[Any]) -> str:
    """Output of a cell, and the value of its last line."""
    return "".join(out.get("text") or out.get("data", {}).get("text/plain", "") for out in outputs)


def test_every_step_says_what_it_found(executed: dict[str, list[Any]]):
    assert text(executed["install"]) == "The lab is installed: nothing to do.\n"
    assert "Lab(tiny on ptx: " in text(executed["gpu"])
    assert [line.split(": compiled")[0] for line in text(executed["compile"]).split("\n") if line] == NAMES
    assert "verdict: PASSED" in text(executed["validate"])
    assert "PASSED       tiny" in text(executed["record"])
    assert text(executed["switch"]).split("\n")[:2] == [
        "the same ids with baseline: True",
        "the same ids with the same seed: True",
    ]
    assert "tokens=24" in text(executed["generate"])


def test_what_needs_a_gpu_says_so(executed: dict[str, list[Any]]):
    assert "cp_async: skipped, device=ptx has no GPU time to measure; use a GPU\n" in text(executed["effect"])
    assert text(executed["effect-plot"]) == "Nothing was timed, so there is nothing to draw.\n"
    assert "device=ptx has no GPU time to measure; " in text(executed["measure"])
    assert "It does not show how long a block works" in text(executed["profile"])


def test_figures_are_drawn_and_nothing_warns(executed: dict[str, list[Any]]):
    drawn = {id: out["data"] for id, outputs in executed.items() for out in outputs if "data" in out}
    assert {id for id, data in drawn.items() if "image/png" in data} == {"counts", "positions-plot"}
    assert "redundant_rmsnorm, tiny, position 1, ptx: layer" in drawn["profile-plot"]["image/svg+xml"]
    assert not [out for outputs in executed.values() for out in outputs if out.get("name") == "stderr"]
