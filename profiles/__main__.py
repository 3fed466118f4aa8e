"""Profile of one kernel: `python -m profiles --help`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from common import ROOT
from common.config.cli import run_task
from common.config.run_config import RunConfig
from experiments.run.setup import Setup
from experiments.tables.progress import progress
from profiles import folder, ncu, nsys, timeline
from profiles.target import Request, request, require_passed
from profiles.tool import find

if TYPE_CHECKING:
    from pandas import DataFrame


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(profile, "profiles", sys.argv[1:] if argv is None else argv)


def profile(cfg: DictConfig) -> int:
    """Make one profile: a folder, and its table on stdout."""
    config, wanted = request(cfg)
    # Both sections are checked, so that no wrong key is ignored because another tool was chosen.
    options = {"nsys": nsys.options(wanted.nsys), "ncu": ncu.options(wanted.ncu, _by_stage(config))}
    if wanted.tool == "timeline":
        where, table, reading = _timeline(config, wanted)
    else:
        where, table = _under_tool(config, wanted, options[wanted.tool])
        reading = ""
    with folder.writing(where):
        path = folder.describe(config, wanted, where, table, reading)
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    print(f"{table.to_string(index=False)}\n\n{reading}\n{shown}".replace("\n\n\n", "\n\n"))
    return 0


def _timeline(config: RunConfig, wanted: Request) -> tuple[Path, "DataFrame", str]:
    from experiments.run.timeline import trace
    from profiles.figure import draw

    where = folder.make(config, wanted)
    with progress(4) as show:
        stack = require_passed(Setup(config, show, trace=True), config.stacks[0])
        show.begin("trace")
        stack.setup.layout.check_room(0, wanted.tokens)  # not used here, but more than a cache holds is a mistake
        found = trace(stack, wanted.position)
    with folder.writing(where):
        timeline.chrome_trace(found, where / "timeline.json")
        draw(found, where / "timeline.svg")
    return where, timeline.by_stage(found), timeline.reading(found)


def _under_tool(config: RunConfig, wanted: Request, options: Sequence[str]) -> tuple[Path, "DataFrame"]:
    """Run profiles.target under the tool. Raises LabError without a usable one, before anything is compiled.

    options: of the tool's command line.
    """
    settings = wanted.nsys if wanted.tool == "nsys" else wanted.ncu
    # In a multirun these are the overrides of this job; the command line has those of all jobs.
    overrides = [*HydraConfig.get().overrides.task, f"seed={config.seed}"]
    target = [sys.executable, "-m", "profiles.target", *overrides]
    tool = find(wanted.tool, settings.text("minimum"))
    where = folder.make(config, wanted)
    if wanted.tool == "nsys":
        return where, nsys.capture(tool, options, target, where)
    return where, ncu.capture(tool, [*options, "--source-folders", str(ROOT)], target, where)


def _by_stage(config: RunConfig) -> bool:
    """True if the stack has a kernel per stage."""
    from common.stacks.catalog import read_catalog

    known = read_catalog().variants
    return any(known[name].launch in ("graph", "launches") for name in config.stacks[0].variants)


if __name__ == "__main__":
    raise SystemExit(main())
