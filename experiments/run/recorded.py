"""Resources of kernels that committed records hold: the same compiler need not read the same text again."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from common import ROOT
from common.compile.inspect import inspect
from common.compile.nvrtc import version
from common.compile.sass import Resources
from common.compile.source import Source
from common.record.provenance import EVIDENCE
from common.record.store import Store


def resources(source: Source, archs: Sequence[str], folder: Path) -> dict[str, Resources]:
    """Resources by `inspect`, which compiles into `folder` what no committed record of this NVRTC holds.

    Raises what `inspect` raises.
    """
    known = recorded(version()).get(source.sha, {})
    made = inspect(source, [arch for arch in archs if arch not in known], folder)
    return {arch: found for arch in archs if (found := known.get(arch) or made.get(arch))}


@cache
def recorded(nvrtc: str) -> dict[str, Mapping[str, Resources]]:
    """By the sha of the text: resources by arch, as this version of NVRTC compiled it."""
    found: dict[str, Mapping[str, Resources]] = {}
    for row in (row for path in sorted((ROOT / EVIDENCE).glob("*.jsonl")) for row in Store(path).records()):
        if row.get("resources") and row["provenance"]["nvrtc"] == nvrtc:
            by_arch = {arch: Resources(**values) for arch, values in row["resources"].items()}
            found[row["source_sha"]] = {**found.get(row["source_sha"], {}), **by_arch}
    return found
