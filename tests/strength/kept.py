"""Results of a long check, kept by what they depend on: after a stop it goes on, and repeats nothing."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from common import ROOT


class Kept:
    """A file with a line of JSON for each result, which threads may add to."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock, self._found = file, Lock(), dict[str, Any]()
        if file.exists():
            for line in file.read_text().splitlines():
                with suppress(ValueError):  # empty, or torn by a stop
                    key, result = json.loads(line)
                    self._found[key] = result

    def get(self, key: str) -> Any:
        """None without a result."""
        return self._found.get(key)

    def put(self, key: str, result: Any) -> None:
        with self._lock:
            self._found[key] = result
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a") as file:
                file.write(f"\n{json.dumps([key, result])}\n")  # not at the end of a torn line


def digest(parts: Iterable[str]) -> str:
    """16 hex digits of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def of_code(*folders: str) -> str:
    """16 hex digits of all Python and C++ below these folders."""
    paths = (
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".cpp", ".hpp")
    )
    return digest(f"{path.relative_to(ROOT)} {path.read_text()}" for path in sorted(paths))
