"""Command that makes tables, figures and the page from the records: `python -m experiments.report --help`."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from common import ROOT
from common.config.cli import run_task
from common.config.section import Section, absolute
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.report import blocks
from experiments.report.evidence import Evidence, read

PAGES = ("README.md", "DEVLOG.md", "docs/*.md")  # files that may hold generated blocks
RESULTS = Path("experiments") / "results"
REMEDY = "python -m experiments.report makes the blocks again; to change one, change the code or add records"


def report(cfg: DictConfig, root: Path = ROOT) -> int:
    """Write the report below `root`, or with `check` compare the generated blocks: 1 if one differs.

    With `records` only its page: documents and figures are tracked, and so say only what tracked records say.
    """
    section = Section.from_config(cfg)
    section.only({"records", "check", "debug"})
    given = section.texts("records")
    files = [*sorted((root / RESULTS).glob("*.jsonl")), *map(absolute, given)]
    evidence = read(files, read_catalog(root))
    if section.flag("check"):
        found = stale(evidence, root)
        for line in found:
            print(f"error: {line} is not what the records give; {REMEDY}", file=sys.stderr)
        return int(bool(found))
    write(evidence, root, [] if given else pages(root))
    return 0


def pages(root: Path) -> list[Path]:
    """The files of PAGES below `root`, relative to it."""
    return [path.relative_to(root) for pattern in PAGES for path in sorted(root.glob(pattern))]


def stale(evidence: Evidence, root: Path) -> list[str]:
    """`FILE: block NAME` for every generated block that differs from the records."""
    make = partial(blocks.make, evidence=evidence)
    return [
        f"{file}: block {name}"
        for file in pages(root)
        for name in blocks.differing((root / file).read_text(), str(file), make)
    ]


def write(evidence: Evidence, root: Path, documents: Sequence[Path]) -> None:
    """Write the page; fill the blocks of `documents`, and write the figures that they show. Prints what changed."""
    from experiments.report.figures import all_figures
    from experiments.report.page import page

    make = partial(blocks.make, evidence=evidence)
    out = {file: blocks.fill((root / file).read_text(), str(file), make) for file in documents}
    figures, text = all_figures(evidence), "".join(out.values())
    shown = {RESULTS / "figures" / f"{figure.name}.svg": figure.svg for figure in figures}
    out |= {path: svg for path, svg in shown.items() if str(path) in text}
    for path in (root / RESULTS / "figures").glob("*.svg") if documents else ():
        if path.relative_to(root) not in out:
            path.unlink()  # no document shows it
    out[RESULTS / "report.html"] = page(evidence, figures)
    for path, text in out.items():
        if (root / path).exists() and (root / path).read_text() == text:
            continue
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        except OSError as error:
            raise LabError(f"{path} cannot be written: {error.strerror}", "make it writable") from error
        print(path)
    print(f"from {len(evidence.records)} records")


main = partial(run_task, report, "report")

if __name__ == "__main__":
    raise SystemExit(main())
