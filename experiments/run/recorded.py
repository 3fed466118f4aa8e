"""Resources from committed records: the same compiler need not compile the same text again."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from common import ROOT
from common.compile.nvrtc import version
from common.compile.sass import Resources, inspect
from common.compile.source import Source
from common.record.provenance import EVIDENCE
from common.record.record import BuildRecord, Record, RunRecord
from common.record.store import Store


def resources(source: Source, archs: Sequence[str], folder: Path) -> dict[str, Resources]:
    """Resources from committed records of this NVRTC, else by `inspect`, which compiles into `folder`.

    Raises what `inspect` raises.
    """
    known = recorded(version()).get(source.sha, {})
    made = inspect(source, [arch for arch in archs if arch not in known], folder)
    return {arch: found for arch in archs if (found := known.get(arch) or made.get(arch))}


@cache
def recorded(nvrtc: str) -> dict[str, dict[str, Resources]]:
    """Resources by sha of the text, then by arch, as compiled by this version of NVRTC."""
    found: dict[str, dict[str, Resources]] = {}
    for path in sorted((ROOT / EVIDENCE).glob("*.jsonl")):
        for record in Store(path).read(Record):
            if isinstance(record, RunRecord | BuildRecord) and record.provenance["nvrtc"] == nvrtc:
                found.setdefault(record.source_sha, {}).update(record.resources)
    return found
