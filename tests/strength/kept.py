"""Long checks: each case in a process of its own, and results kept, so that after a stop nothing is repeated."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from common import ROOT
from common.errors import LabError
from experiments.processes import apart

Case = TypeVar("Case")


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


def each_apart(
    call: Callable[[Case], Any], cases: Sequence[Case], processes: int, seconds: float, *preload: str
) -> Iterator[tuple[Case, Any]]:
    """Each case with what `call` makes of it in a process of its own, or the LabError that it ends with, as they end.

    preload: modules that the processes share, which take longest to import.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(list(preload))

    def one(case: Case) -> tuple[Case, Any]:
        try:
            return case, apart(seconds, call, case, context=context)
        except LabError as error:
            return case, error

    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(one, case) for case in cases]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(cancel_futures=True)
