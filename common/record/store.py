"""Append-only store of records: a file with one JSON object per line."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from common.cache.log import note_once
from common.errors import LabError
from common.json_values import to_json
from common.record.record import Record, read_record

SCHEMA = 3
STORE_FIELDS = ("id", "schema", "time")  # added to every row by the store
R = TypeVar("R", bound=Record)
OTHER_FILE = "choose another file with results=FILE"


def _without_sanitizer(row: dict[str, Any]) -> dict[str, Any]:
    asked = row.get("asked")
    if isinstance(asked, dict) and asked.get("sanitize", "") is None:
        del asked["sanitize"]
    return row


# {schema: converter of a row to the next one}. Rows of schema 1 have no `asked`, the settings of a run beyond its key;
# in schema 2 a sanitizer is among the settings, null if there was none.
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda row: {"asked": None, **row},
    2: _without_sanitizer,
}


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
        """Raise LabError if rows cannot be written; called before any work is done."""
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
                written = os.write(file, line)
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, size)
                raise self._unwritable(error) from error
            if written != len(line):
                os.ftruncate(file, size)
                raise LabError(
                    f"{self.path}: only {written} of {len(line)} bytes of a row were written", "free space on that disk"
                )
        return name

    def records(self) -> list[dict[str, Any]]:
        """The rows of `read` as JSON."""
        return [dict(record.row) for record in self.read(Record)]

    def read(self, kind: type[R]) -> list[R]:
        """All records of one type in the order they were written, in the current schema; [] if there is no file.

        A line that is not a whole row stays in the file, is copied to `<path>.corrupt`, and is named in a note.
        Raises LabError for a row of a newer schema, or a file that cannot be read.
        """
        found: dict[str, Record] = {}
        corrupt = []
        for number, line in enumerate(self._lines(), start=1):
            if not line.strip():
                continue
            try:
                record: Record | None = read_record(self._migrated(json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError):
                record = None
            if record:
                found.setdefault(record.id, record)
            else:
                corrupt.append((number, line))
        if corrupt:
            self._copy_corrupt(corrupt)
        return [record for record in found.values() if isinstance(record, kind)]

    def _migrated(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["schema"] > SCHEMA:
            cause = f"{self.path} has rows of schema {row['schema']}, and this version of the lab reads up to {SCHEMA}"
            raise LabError(cause, f"update the lab, or {OTHER_FILE}")
        while row["schema"] < SCHEMA:
            row = MIGRATIONS[row["schema"]](row) | {"schema": row["schema"] + 1}
        return row

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

    def _copy_corrupt(self, corrupt: list[tuple[int, bytes]]) -> None:
        """Append to `<path>.corrupt` the lines that it does not have yet, and warn. corrupt: line numbers, lines."""
        copy = self.path.with_name(self.path.name + ".corrupt")
        numbers = ", ".join(str(number) for number, _ in corrupt)
        outcome = f"copied to {copy}"
        try:
            copied = set(copy.read_bytes().split(b"\n")) if copy.exists() else set()
            with open(copy, "ab") as file:
                file.writelines(line + b"\n" for _, line in corrupt if line not in copied)
        except OSError as error:
            outcome = f"not copied, because {copy} cannot be written: {error.strerror}"
        note_once(f"{self.path}: damaged row on line {numbers}; {outcome}")

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Context with the file descriptor of the file, opened for appending and locked until the end."""
        file = -1
        try:
            try:
                self._check_kind()
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                raise self._unwritable(error) from error
            yield file
        finally:
            if file >= 0:
                os.close(file)

    def _check_kind(self) -> None:
        """Raise LabError unless rows can be read again: a pipe waits, /dev/null forgets, /dev/zero never ends."""
        with suppress(FileNotFoundError):
            if not S_ISREG(self.path.stat().st_mode):
                raise LabError(f"{self.path} is no regular file, and rows must be read again", OTHER_FILE)

    def _unwritable(self, error: OSError) -> LabError:
        return LabError(f"{self.path} cannot be written: {error.strerror}", OTHER_FILE)
