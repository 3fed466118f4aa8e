"""Append-only store of records: a file with one JSON object per line."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from common.cache.log import note_once
from common.errors import LabError
from common.errors.machine import MachineError
from common.json_values import to_json
from common.record.provenance import given_commit
from common.record.record import Record, read_record

SCHEMA = 3
STORE_FIELDS = ("id", "schema", "time")  # added to every row by the store
R = TypeVar("R", bound=Record)
OTHER_FILE = "choose another file with results=FILE"


def key(source_sha: str, knobs: Any, model: Any, weights_sha: str, device: str, compiler: str) -> str:
    """Key of an experiment: 16 hex digits, a hash of the six arguments. Rows with equal keys are repetitions."""
    parts = [to_json(part) for part in (source_sha, knobs, model, weights_sha, device, compiler)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """Rows in the file `path`. Processes may append and read at the same time; a lock on the file orders them.

    `cat` merges the files of several machines: a row that occurs twice is read once.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def check(self) -> None:
        """Raise LabError if rows cannot be written, or name a wrong commit; called before any work is done."""
        given_commit()
        with self._open():
            pass

    def append(self, record: Mapping[str, Any]) -> str:
        """Write one row, wait until it is on the disk (fsync), and return its id.

        record: values that `to_json` accepts. Raises LabError if the row cannot be written, and restores the file;
        ValueError for a field of STORE_FIELDS, TypeError for a value that has no JSON form.
        """
        if reserved := set(record) & set(STORE_FIELDS):
            raise ValueError(f"only the store sets {sorted(reserved)}")
        now = datetime.now(UTC)
        row = {"schema": SCHEMA, "time": now.isoformat(timespec="microseconds"), **to_json(record)}
        content = json.dumps(row, sort_keys=True, allow_nan=False).encode()
        name = f"{now:%Y%m%dT%H%M%S}-{hashlib.sha256(content + os.urandom(8)).hexdigest()[:10]}"
        line = json.dumps({"id": name, **row}, allow_nan=False).encode() + b"\n"
        with self._open() as file:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash left half a line: start a new one
            try:
                with open(file, "ab", closefd=False) as stream:
                    stream.write(line)
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, size)
                raise self._unwritable(error) from error
        return name

    def records(self) -> list[dict[str, Any]]:
        """The rows of `read` as JSON."""
        return [dict(record.row) for record in self.read(Record)]

    def read(self, kind: type[R]) -> list[R]:
        """All records of one type, oldest first, also of a file that `cat` has merged; [] if there is no file.

        A line that is not a whole row stays in the file, and is named in a note. Raises LabError for a row of another
        schema, or a file that cannot be read.
        """
        found: dict[str, Record] = {}
        damaged = []
        for number, line in enumerate(self._lines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if (schema := row["schema"]) != SCHEMA:
                    cause = f"{self.path} has rows of schema {schema}, and this version of the lab reads {SCHEMA}"
                    raise LabError(cause, f"take the version that wrote them, or {OTHER_FILE}")
                record = read_record(row)
            except (ValueError, KeyError, TypeError, RecursionError):
                record = None
            if record:
                found.setdefault(record.id, record)
            else:
                damaged.append(str(number))
        if damaged:
            note_once(f"{self.path}: damaged row on line {', '.join(damaged)}")
        oldest_first = sorted(found.values(), key=lambda record: record.time)
        return [record for record in oldest_first if isinstance(record, kind)]

    def _lines(self) -> list[bytes]:
        try:
            self._check_kind()
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LabError(f"{self.path} cannot be read: {error.strerror}", OTHER_FILE) from error

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Context with the file descriptor of the file, opened for appending and locked until the end."""
        try:
            self._check_kind()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _check_kind(self) -> None:
        """Raise LabError unless rows can be read again: a pipe waits, and /dev/zero never ends."""
        if self.path.exists() and not self.path.is_file():
            raise LabError(f"{self.path} is no regular file, and rows must be read again", OTHER_FILE)

    def _unwritable(self, error: OSError) -> LabError:
        return MachineError(f"{self.path} cannot be written: {error.strerror}", OTHER_FILE)
