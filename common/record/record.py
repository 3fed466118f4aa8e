"""Records as types: one class for each kind of row in the store.

A field without a default must be in a row, and each field must have its type; else the row counts as damaged, like a
torn line. A field with a default may be absent, as in rows older than the field. `row` keeps all fields, unknown ones
included.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from common.compile.sass import Resources
from common.errors import LabError
from common.json_values import from_json
from common.model.shapes import Model
from common.record.measurement import Measurement
from common.validate.verdict import Verdict

JSON = Mapping[str, Any]
# Fields of a model that older rows lack, with their defaults.
LATER = {each.name: each.default for each in fields(Model) if each.default is not MISSING}


def model_fields(row: JSON) -> JSON:
    """The model of a row, field by field; a field that is newer than the row has its default."""
    return LATER | row["model"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row of any kind. id, schema and time (UTC, ISO 8601) are set by the store."""

    id: str
    schema: int
    time: str
    kind: str = ""
    provenance: JSON = field(default_factory=dict)
    row: JSON = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class KernelRecord(Record):
    """A row about one kernel.

    variant  name of the stack, as requested; knobs: compile-time constants by variant; source_sha: of the kernel's text
    """

    variant: str
    stack: tuple[str, ...]
    knobs: Mapping[str, Mapping[str, int | str]]
    model: Model
    threads: int
    source_sha: str
    provenance: JSON


@dataclass(frozen=True, kw_only=True)
class CountRecord(KernelRecord):
    """Counts of one step, by stage. blocks: of the grid; key: for the lookup."""

    key: str
    counts: Mapping[str, Mapping[str, int]]
    blocks: int
    position: int = 1


@dataclass(frozen=True, kw_only=True)
class TimelineRecord(KernelRecord):
    """Times within one step at a position, by stamps of a kernel that was compiled for them; see `summary`.

    stages  name, work_ns and wait_ns of each; layer_ns: of a layer. blocks: of the grid; seed: of the weights
    """

    device: Mapping[str, Any]
    seed: int
    blocks: int
    position: int
    stages: tuple[Mapping[str, Any], ...]
    layer_ns: float | None


@dataclass(frozen=True)
class Weights:
    """sha: sha256 of their content; source: a file's name, or the recipe of synthetic ones."""

    sha: str
    source: str


@dataclass(frozen=True)
class Place:
    """Device of a run: `ptx` or `cuda`, its compiler, and the GPU's name."""

    device: str
    compiler: str
    gpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord(KernelRecord):
    """One run of a stack.

    key       see `common.record.store.key`; rows with equal keys are repetitions
    status    of the validation, or of the error that ended the run; `reason` in one line, `report` in many
    proof     id of the record with the validation of the same kernel, if this one has none
    asked     options of the run beyond its key; None where a row has none
    validator digest of the code that validates; "" where a row has none
    counts    of one step at position 1, by stage
    latencies, generation   times at each position; of many tokens from position 0 on
    took      seconds of the run; seconds: of its parts, see experiments/run/describe.py
    """

    key: str
    status: str
    reason: str
    weights: Weights
    device: Place
    parent: tuple[str, ...]
    seed: int
    verdict: Verdict | None
    counts: Mapping[str, Mapping[str, int]] | None
    resources: Mapping[str, Resources]
    latencies: tuple[Measurement, ...]
    generation: Measurement | None
    report: str = ""
    proof: str = ""
    blocks: int | None = None
    asked: JSON | None = None
    validator: str = ""
    took: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Settings that decide a row of an experiment. task: the experiment's name."""

    task: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class RowRecord(Record):
    """One row of an experiment's table, kept so that an interrupted one resumes. took: seconds."""

    asked: Asked
    reason: str
    took: float
    found: JSON | None = None
    provenance: JSON


@dataclass(frozen=True, kw_only=True)
class StepRecord(Record):
    """One call of a step of a plan of evidence. seconds: of the call; rows: that it made."""

    name: str
    asked: str
    device: str
    state: str
    seconds: float
    rows: int
    code: int | None = None
    report: str = ""
    provenance: JSON


@dataclass(frozen=True, kw_only=True)
class TableRecord(Record):
    """The table of an experiment (`kind`). keys: columns that name a line; needs_gpu: parts missing without a GPU."""

    kind: str
    question: str
    basis: str
    columns: tuple[str, ...]
    table: tuple[JSON, ...]
    notes: tuple[str, ...]
    needs_gpu: str | None
    keys: int = 1
    seed: int | None = None
    provenance: JSON


KINDS: Mapping[str, type[Record]] = {
    "run": RunRecord,
    "count": CountRecord,
    "timeline": TimelineRecord,
    "row": RowRecord,
    "step": StepRecord,
}


def read_record(row: Any) -> Record | None:
    """The record of one row of the current schema; None if it is not a record, or lacks a field of its kind."""
    if not isinstance(row, dict):
        return None
    kind = TableRecord if "table" in row else KINDS.get(str(row.get("kind")), Record)
    try:
        return from_json(kind, row | {"row": row})
    except (KeyError, TypeError, ValueError, OverflowError, LabError):
        return None
