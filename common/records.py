"""The store of evidence: one JSON object per line, only ever appended to."""

import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.errors import LabError
from common.plain import plain

SCHEMA = 2
# What makes a row of one schema a row of the next. 1: without `asked`, what the run was asked for beyond its key.
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: lambda row: {"asked": None, **row}}
STAMPED = ("id", "schema", "time")  # what the store itself puts into every row
CHOOSE = "choose another file with results=FILE"


def key(source_sha: str, knobs: Any, model: Any, weights_sha: str, device: str, compiler: str) -> str:
    """Name of one experiment: 16 hex digits, equal when all six are equal. Rows with one key are repetitions of it."""
    parts = [plain(part) for part in (source_sha, knobs, model, weights_sha, device, compiler)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """Rows in the file `path`. Many processes may append and read at once; a lock on the file keeps them apart.

    Files of several machines are merged by `cat`: a row that is there twice is read once.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def check(self) -> None:
        """Raise LabError, before any work is done, when rows could not be written."""
        with self._open():
            pass

    def append(self, record: Mapping[str, Any]) -> str:
        """Write one row and return its id; it is on the disk when this returns.

        `record` may hold dataclasses, paths, numpy numbers and arrays; NaN and infinities are written as the strings
        "NaN", "Infinity" and "-Infinity", so that every line is JSON. Raises LabError when the row cannot be written,
        and the file is then as it was.
        """
        if clash := set(record) & set(STAMPED):
            raise ValueError(f"the store sets {sorted(clash)} itself")
        now = datetime.now(UTC)
        row = {"schema": SCHEMA, "time": now.isoformat(timespec="microseconds"), **plain(record)}
        content = json.dumps(row, sort_keys=True, allow_nan=False).encode()
        name = f"{now:%Y%m%dT%H%M%S}-{hashlib.sha256(content + os.urandom(8)).hexdigest()[:10]}"
        line = json.dumps({"id": name, **row}, allow_nan=False).encode() + b"\n"
        with self._open() as file:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a line torn by a crash must not swallow this one
            try:
                written = os.write(file, line)
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, size)
                raise self._unwritable(error) from error
            if written != len(line):
                os.ftruncate(file, size)
                raise LabError(f"{self.path} took {written} of {len(line)} bytes of a row", "free space on that disk")
        return name

    def rows(self) -> list[dict[str, Any]]:
        """All rows in the order they were written, older schemas brought up to this one; [] when there is no file.

        A line that is no row stays where it is, is copied to `<path>.corrupt`, and is reported in a warning.
        Raises LabError for a row of a newer schema.
        """
        rows: dict[str, dict[str, Any]] = {}
        corrupt = []
        for number, line in enumerate(self._lines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                rows.setdefault(row["id"], self._migrated(row))
            except (ValueError, KeyError, TypeError):
                corrupt.append((number, line))
        if corrupt:
            self._set_aside(corrupt)
        return list(rows.values())

    def _migrated(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["schema"] > SCHEMA:
            cause = f"{self.path} has rows of schema {row['schema']}, and this lab knows {SCHEMA}"
            raise LabError(cause, f"update it, or {CHOOSE}")
        while row["schema"] < SCHEMA:
            row = MIGRATIONS[row["schema"]](row) | {"schema": row["schema"] + 1}
        return row

    def _lines(self) -> list[bytes]:
        try:
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LabError(f"{self.path} cannot be read: {error.strerror}", CHOOSE) from error

    def _set_aside(self, corrupt: list[tuple[int, bytes]]) -> None:
        aside = self.path.with_name(self.path.name + ".corrupt")
        numbers = ", ".join(str(number) for number, _ in corrupt)
        where = f"copied to {aside}"
        try:
            known = set(aside.read_bytes().split(b"\n")) if aside.exists() else set()
            with open(aside, "ab") as file:
                file.writelines(line + b"\n" for _, line in corrupt if line not in known)
        except OSError as error:
            where = f"left there alone, for {aside} cannot be written: {error.strerror}"
        warnings.warn(f"{self.path}: no row on line {numbers}; {where}", stacklevel=3)

    @contextmanager
    def _open(self) -> Iterator[int]:
        """The file, opened for appending and locked; closing it gives the lock back."""
        file = -1
        try:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                raise self._unwritable(error) from error
            yield file
        finally:
            if file >= 0:
                os.close(file)

    def _unwritable(self, error: OSError) -> LabError:
        return LabError(f"{self.path} cannot be written: {error.strerror}", CHOOSE)
