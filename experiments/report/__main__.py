"""Command that makes tables and figures from the records: `python -m experiments.report --help`."""

import sys
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from common import ROOT
from common.config.cli import run_task
from common.config.section import Section
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.report import blocks
from experiments.report.evidence import Evidence, read
from experiments.report.figures import all_figures

PAGES = ("README.md", "DEVLOG.md", "docs/*.md")  # files that may hold generated blocks
RESULTS = Path("experiments") / "results"
FIGURES = RESULTS / "figures"
REMEDY = "python -m experiments.report makes the blocks again; to change one, change the code or add records"


def report(cfg: DictConfig, root: Path = ROOT) -> int:
    """Fill the generated blocks below `root`, or with `check` compare them: 1 if one differs."""
    section = Section.from_config(cfg)
    section.only({"check", "debug"})
    evidence = read(sorted((root / RESULTS).glob("*.jsonl")), read_catalog(root))
    if section.flag("check"):
        found = stale(evidence, root)
        for line in found:
            print(f"error: {line} is not what the records give; {REMEDY}", file=sys.stderr)
        return int(bool(found))
    write(evidence, root)
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
        for name in blocks.differing((root / file).read_text(encoding="utf-8"), str(file), make)
    ]


def write(evidence: Evidence, root: Path) -> None:
    """Fill the blocks of all documents, and write the figures that they show. Prints what changed."""
    make = partial(blocks.make, evidence=evidence)
    out = {file: blocks.fill((root / file).read_text(encoding="utf-8"), str(file), make) for file in pages(root)}
    text = "".join(out.values())
    figures = {FIGURES / f"{name}.svg": svg for name, svg in all_figures(evidence).items()}
    out |= {path: svg for path, svg in figures.items() if path.name in text}
    for path in (root / FIGURES).glob("*.svg"):
        if path.relative_to(root) not in out:
            path.unlink()  # no document shows it
    for path, text in out.items():
        if (root / path).exists() and (root / path).read_text(encoding="utf-8") == text:
            continue
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise LabError(f"{path} cannot be written: {error.strerror}", "make it writable") from error
        print(path)
    print(f"from {len(evidence.records)} records")


main = partial(run_task, report, "report")

if __name__ == "__main__":
    raise SystemExit(main())
