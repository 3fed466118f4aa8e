"""A scratch copy of the lab, to edit as a contributor would, that knows which of its files were touched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT

FOLDERS = ("common", "conf", "variants", "experiments")
IGNORED = shutil.ignore_patterns("runs", "results")


class Scratch:
    """The lab at `path`, without results. Everything that runs is read from there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, path / folder, ignore=IGNORED)
        shutil.copy(ROOT / "pyproject.toml", path)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that stands once in the file `name`."""
        text = (self.path / name).read_text()
        assert text.count(old) == 1, f"{name} says {old!r} {text.count(old)} times"
        (self.path / name).write_text(text.replace(old, new))

    def add(self, name: str, text: str) -> None:
        assert not (self.path / name).exists()
        (self.path / name).write_text(text)

    def touched(self) -> set[str]:
        """Names of the files that differ from the lab's, or are not in it."""
        files = (path for folder in FOLDERS for path in (self.path / folder).rglob("*") if path.is_file())
        names = {str(path.relative_to(self.path)) for path in files if "__pycache__" not in path.parts}
        return {
            name
            for name in names
            if not (ROOT / name).exists() or (ROOT / name).read_bytes() != (self.path / name).read_bytes()
        }

    def run(self, cache: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        """`python -m experiments` on the ptx device, with a new file of results that is not among the touched ones."""
        fixed = [
            "device=ptx",
            "timing=none",
            "archs=[]",
            "validate=quick",
            f"cache={cache}",
            f"results={self.path}/records.jsonl",
        ]
        paths = os.pathsep.join(filter(None, (str(self.path), os.environ.get("PYTHONPATH"))))
        return subprocess.run(
            [sys.executable, "-m", "experiments", *fixed, *argv],
            cwd=self.path,
            env=os.environ | {"PYTHONPATH": paths},
            text=True,
            capture_output=True,
        )
