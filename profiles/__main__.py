"""Look inside one kernel: `python -m profiles --help`."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from common.catalog import ROOT
from common.cli import launch
from common.config import RunConfig
from common.errors import LabError
from experiments.progress import progress
from profiles import ncu, nsys, timeline
from profiles.target import Request, prove, request, rewind
from profiles.tool import SHOWN, find

if TYPE_CHECKING:
    from pandas import DataFrame

KEPT, PASSING = Path("profiles"), Path("experiments") / "runs" / "profiles"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return launch(lambda cfg: profile(cfg, arguments), "profiles", arguments)


def profile(cfg: DictConfig, arguments: Sequence[str]) -> int:
    """Make one profile: a folder, and its table on stdout. `arguments`: what the watched run is started with, too."""
    config, wanted = request(cfg)
    if wanted.tool == "timeline":
        folder, table, reading = _timeline(config, wanted)
    else:
        folder, table = _watch(config, wanted, [*arguments, f"seed={config.seed}"])
        reading = ""
    where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    _write(config, wanted, folder, table, reading)
    print(f"{table.to_string(index=False)}\n\n{reading}\n{where}/README.md".replace("\n\n\n", "\n\n"))
    return 0


def _timeline(config: RunConfig, wanted: Request) -> tuple[Path, "DataFrame", str]:
    from experiments.run import open_session, prepare
    from profiles.figure import draw

    with progress(4) as show:
        plain = prepare(config, show)
        lab, case = timeline.traced(plain, config.stacks[0])
        case = prove(lab, case)
        show.begin("trace")
        with closing(open_session(lab, case.program)) as session:
            for _ in ("warm up", "look"):
                rewind(session, wanted.position, 1)
                session.run(1)
            title = f"{case.stack.name}, {lab.model.name}, position {wanted.position}, {lab.device.name}"
            found = timeline.read(session, title, lab.device.name)
    folder = _folder(config, wanted)
    timeline.chrome_trace(found, folder / "timeline.json")
    draw(found, folder / "timeline.svg")
    return folder, timeline.by_stage(found), timeline.reading(found)


def _watch(config: RunConfig, wanted: Request, arguments: Sequence[str]) -> tuple[Path, "DataFrame"]:
    """Run profiles.target under the tool; where the tool cannot be used run it all the same, then say why."""
    target = [sys.executable, "-m", "profiles.target", *arguments]
    settings = wanted.nsys if wanted.tool == "nsys" else wanted.ncu
    try:
        find(wanted.tool, settings.text("minimum"))
    except LabError:
        subprocess.run(target, check=False)
        raise
    folder = _folder(config, wanted)
    if wanted.tool == "nsys":
        return folder, nsys.capture(settings, target, folder)
    return folder, ncu.capture(settings, _by_stage(config), target, ROOT, folder)


def _by_stage(config: RunConfig) -> bool:
    """Whether the stack has a kernel per stage."""
    from common.catalog import read_catalog

    known = read_catalog().variants
    return any(known[name].launch in ("graph", "launches") for name in config.stacks[0].variants)


def _folder(config: RunConfig, wanted: Request) -> Path:
    model = config.model.name if config.model else Path(config.weights).name
    name = f"{wanted.tool}-{config.stacks[0].name}-{model}-{config.device.name}"
    folder = ROOT / (KEPT if wanted.keep else PASSING) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder} cannot be made: {error.strerror}", "make it, or free its name") from error
    return folder


def _write(config: RunConfig, wanted: Request, folder: Path, table: "DataFrame", reading: str) -> None:
    """README.md of the profile: command, where it comes from, table, reading."""
    from common.provenance import provenance
    from experiments.report.markdown import of_frame

    origin = provenance()
    commit = (origin["git"] or {}).get("commit") or "unknown"
    gpu = origin["gpu"] or {}
    device = gpu.get("name") or f"device {config.device.name}, {origin['cpu']}"
    shown = SHOWN.get(wanted.tool, "the kernel's own stamps")
    (folder / "README.md").write_text(
        f"# {config.stacks[0].title}: {wanted.tool}\n\n"
        f"`{origin['command']}`, seed {config.seed}\n\n"
        f"By {shown}, on {device}; commit {commit[:12]}{'+' if (origin['git'] or {}).get('dirty') else ''}, "
        f"{origin['time']}.\n\n{of_frame(table)}\n"
        + ("\n![timeline](timeline.svg)\n" if wanted.tool == "timeline" else "")
        + (f"\n{reading}\n" if reading else "")
    )


if __name__ == "__main__":
    raise SystemExit(main())
