"""The store of evidence: one JSON object per line, only ever appended to."""

import dataclasses
import fcntl
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.errors import LabError

SCHEMA = 1
STAMPED = ("id", "schema", "time")  # what the store itself puts into every row
CHOOSE = "choose another file with results=FILE"


def key(source_sha: str, knobs: Any, model: Any, weights_sha: str, device: str, compiler: str) -> str:
    """Name of one experiment: 16 hex digits, equal when all six are equal. Rows with one key are repetitions of it."""
    parts = [_plain(part) for part in (source_sha, knobs, model, weights_sha, device, compiler)]
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
        row = {"schema": SCHEMA, "time": now.isoformat(timespec="microseconds"), **_plain(record)}
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
        """All rows in the order they were written; [] when there is no file.

        A line that is no row stays where it is, is copied to `<path>.corrupt`, and is reported in a warning.
        """
        rows: dict[str, dict[str, Any]] = {}
        corrupt = []
        for number, line in enumerate(self._lines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                rows.setdefault(row["id"], row)
            except (ValueError, KeyError, TypeError):
                corrupt.append((number, line))
        if corrupt:
            self._set_aside(corrupt)
        return list(rows.values())

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


def _plain(value: Any) -> Any:
    """`value` out of what JSON knows. Raises TypeError for what has no such form."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch
        return _plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in a record")
