"""Every fenced block of README.md and docs/ does what the page says: see tests/pages.py for the rules."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest

from common import ROOT

pytestmark = pytest.mark.cpu
COPIED = ("common", "conf", "docs", "experiments", "profiles", "variants", "README.md", "DEVLOG.md", "pyproject.toml")
LINKED = ("Makefile", "tests")
PYTHON = "docs/python.md"  # tests/cpu/test_lab.py runs it, and reads what it prints
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
WITH_BLOCKS = [page for page in PAGES if page != PYTHON and pages.executed((ROOT / page).read_text())]


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_the_blocks_of_a_page_run_as_they_stand(page, tmp_path, cpu_cache):
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("runs"))
        else:
            shutil.copy(ROOT / name, tmp_path)
    for name in LINKED:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "megakernel-lab").symlink_to(cpu_cache)
    paths = [str(tmp_path), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    settings |= {"MPLCONFIGDIR": str(cpu_cache / "matplotlib")}  # its list of fonts takes half a second
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "pages.py", page],
        cwd=tmp_path,
        env=os.environ | settings | {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100"},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_fence_is_a_block_of_the_rules():
    for page in PAGES:
        text = Path(ROOT / page).read_text()
        assert 2 * len(pages.BLOCK.findall(text)) == len(re.findall(r"^```", text, re.MULTILINE)), page
