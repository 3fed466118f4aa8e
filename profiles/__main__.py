"""Profile of one kernel: `python -m profiles --help`. A folder, next to the records of runs or kept in profiles/."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from common import ROOT
from common.config.cli import run_task
from common.display.table import Table, markdown
from common.errors.machine import make_writable
from common.lazy import pandas
from common.record.provenance import provenance
from common.stacks.stack import title
from experiments.run.setup import Setup
from experiments.run.timeline import summary
from experiments.tables.commands import relative
from experiments.tables.progress import progress
from experiments.tables.row import label_of
from profiles import ncu, nsys
from profiles.target import Profile, read, require_passed
from profiles.tool import FULL_NAMES, find


def profile(cfg: DictConfig) -> int:
    """Make one profile: a folder, and its table on stdout."""
    made = read(cfg)
    # Both sections are checked, so that no wrong key is ignored because another tool was chosen.
    options = {"nsys": nsys.options(made.nsys), "ncu": ncu.options(made.ncu)}
    if made.tool == "timeline":
        folder, table, reading = _timeline(made)
    else:
        folder, table = _under_tool(made, options[made.tool])
        reading = ""
    path = _describe(made, folder, table, reading)
    print(f"{table.to_string(index=False)}\n", *([reading] if reading else []), relative(path), sep="\n")
    return 0


def _timeline(made: Profile) -> tuple[Path, "pandas.DataFrame", str]:
    from profiles import timeline

    folder = make_folder(made)
    with progress(4) as show:
        stack = require_passed(Setup(made.config, show, trace=True), made.config.stacks[0])
        show.begin("trace")
        found = stack.timeline(made.position)
    timeline.chrome_trace(found, folder / "timeline.json")
    timeline.draw(found, folder / "timeline.svg")
    reading = timeline.reading(found)
    if found.timed:
        about = {"source_sha": stack.source.sha, "blocks": stack.found.blocks, "position": made.position}
        record = stack.append({"kind": "timeline", **about, **summary(found)})
        reading += f" Its record is {record}."
    return folder, timeline.by_stage(found), reading


def _under_tool(made: Profile, options: Sequence[str]) -> tuple[Path, "pandas.DataFrame"]:
    """Run profiles.target under the tool. Raises LabError without a usable one, before anything is compiled.

    options: of the tool's command line.
    """
    # In a multirun these are the overrides of this job; the command line has all jobs'.
    overrides = [*HydraConfig.get().overrides.task, f"seed={made.config.seed}"]
    target = [sys.executable, "-m", "profiles.target", *overrides]
    tool = find(made.tool)
    folder = make_folder(made)
    if made.tool == "nsys":
        return folder, nsys.capture(tool, options, target, folder)
    return folder, ncu.capture(tool, [*options, "--source-folders", str(ROOT)], target, folder)


def make_folder(made: Profile) -> Path:
    """Make the folder and check that it is writable, before minutes of work. Raises LabError."""
    config = made.config
    model = config.model.name if config.model else Path(config.weights).name
    parent = ROOT / "profiles" if made.keep else config.results.parent / "profiles"
    stack = label_of(config.stacks[0], own=False).replace(" ", "-")
    folder = parent / f"{made.tool}-{stack}-{model}-{config.device.name}-{made.position}"
    make_writable(folder, "choose a writable folder: results=FOLDER/records.jsonl, without keep=true")
    return folder


def _describe(made: Profile, folder: Path, table: "pandas.DataFrame", reading: str) -> Path:
    """Write README.md of the profile: command, device, commit, table, interpretation. Returns its path."""
    config = made.config
    origin = provenance(config.device.bus_id)
    git, gpu = origin["git"] or {}, origin["gpu"] or {}
    commit = f"{(git.get('commit') or 'unknown')[:12]}{'+' if git.get('dirty') else ''}"
    source = FULL_NAMES.get(made.tool, "timestamps in the kernel")
    device = gpu.get("name") or f"device {config.device.name}, {origin['cpu']}"
    path = folder / "README.md"
    path.write_text(
        f"# {title(config.stacks[0].variants)}: {made.tool}\n\n"
        f"`{origin['command']}`, seed {config.seed}\n\n"
        f"By {source}, on {device}; commit {commit}, {origin['time']}.\n\n"
        f"{markdown(Table.of(table.to_dict('records'), table.columns))}\n"
        + ("\n![timeline](timeline.svg)\n" if made.tool == "timeline" else "")
        + (f"\n{reading}\n" if reading else ""),
        encoding="utf-8",
    )
    return path


main = partial(run_task, profile, "profiles")

if __name__ == "__main__":
    raise SystemExit(main())
