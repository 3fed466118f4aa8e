"""A copy of the lab with a few variants, some of them harmful, run like a user does: `python -m experiments` inside it.

No kernel can end the process that executes its PTX, or take its memory: there the executor of the copy does the harm.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import ROOT
from common.record.store import Store

BY_KERNEL = {
    "segfaults": "volatile int *volatile nowhere = nullptr; *nowhere = 1;",
    "never_ends": "for (volatile int on = 1; on;) {}",
}
BY_EXECUTOR = {"aborts": "os.abort()", "eats_memory": "[bytearray(1 << 26) for _ in iter(int, 1)]"}
EXECUTOR = """

class {name}(PtxDevice.sessions):
    def _run_launches(self, these):
        if self._source.name == "{name}":
            {harm}
        super()._run_launches(these)

PtxDevice.sessions = {name}
"""
DEADLOCK = """
template <class Base> struct Deadlocks : Base {
  template <Stage S> static DEVICE void barrier(const Context &c, int layer) {
    if (S != Stage::qkv || blockIdx.x != 0) Base::template barrier<S>(c, layer);
  }
};
"""
HEADER = """// Idea        do harm
// Hypothesis  it costs this stack alone
// Overrides   {member}
// Run         python -m experiments variant={name}
"""


def make_root(path: Path, *faults: str) -> Path:
    """The lab at `path` with the variants baseline, atomic_barrier and `faults`: keys of BY_..., or "deadlocks"."""
    for name in ("common", "conf", "experiments"):
        skipped = shutil.ignore_patterns("runs", "results", "variant", "suite", "report")
        shutil.copytree(ROOT / name, path / name, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", path)
    for folder in ("variants", "conf/variant"):
        (path / folder).mkdir()
    for name in ("baseline", "atomic_barrier"):
        shutil.copy(ROOT / "variants" / f"{name}.cu", path / "variants")
        shutil.copy(ROOT / "conf" / "variant" / f"{name}.yaml", path / "conf" / "variant")
    shutil.copy(ROOT / "conf" / "variant" / "all.yaml", path / "conf" / "variant")
    for name in faults:
        (path / "variants" / f"{name}.cu").write_text(_text(name))
        (path / "conf" / "variant" / f"{name}.yaml").write_text("")
        if name in BY_EXECUTOR:
            with (path / "common" / "devices" / "ptx" / "device.py").open("a") as device:
                device.write(EXECUTOR.format(name=name, harm=BY_EXECUTOR[name]))
    return path


def _text(name: str) -> str:
    mixin = "".join(word.capitalize() for word in name.split("_"))
    harmful = f"""
template <class Base> struct {mixin} : Base {{
  static DEVICE void embed(const Context &c) {{ {BY_KERNEL.get(name, "")} Base::embed(c); }}
}};
"""
    header = HEADER.format(name=name, member="barrier" if name == "deadlocks" else "embed")
    return f'{header}#include "common/kernel/decode.cuh"\n{DEADLOCK if name == "deadlocks" else harmful}'


def command(root: Path, cache: Path, *argv: str) -> list[str]:
    """The PTX device, no inspection, results below `root`."""
    fixed = ["device=ptx", "timing=none", "archs=[]", "validate=quick", f"cache={cache}", f"results={results(root)}"]
    return [sys.executable, "-m", "experiments", *fixed, *argv]


def start(root: Path, cache: Path, *argv: str, **options: Any) -> subprocess.Popen[str]:
    """Start the lab of `root` in its own process group; in the folder `root` unless `options` has another cwd."""
    more = options.pop("preexec_fn", None)

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a script inherits that it is ignored
        if more:
            more()

    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": root} | options
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.Popen(
        command(root, cache, *argv), env=environment, text=True, start_new_session=True, preexec_fn=prepare, **options
    )


def results(root: Path) -> Path:
    return root / "records.jsonl"


def rows(root: Path) -> list[dict[str, Any]]:
    return Store(results(root)).records()


def by_variant(root: Path) -> dict[str, dict[str, Any]]:
    return {row["variant"]: row for row in rows(root)}


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
