"""Progress on stderr: one moving line on a terminal, plain lines anywhere else."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TextIO

SILENT = 20  # seconds without a line, after which plain progress shows a detail


class Progress:
    """Plain lines: each step that begins, each note, and of details one where no line was shown for long."""

    _shown = math.inf  # when the last line was

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, what: str) -> None:
        """A step begins, such as `compile vec128`; the one before it has ended."""
        self.note(what)

    def detail(self, text: str, of: str = "") -> None:
        """Progress within a step, such as `schedule 3 of 20`; `of` a stack, if several run. The next overwrites it."""
        if monotonic() - self._shown > SILENT:
            self.note(f"{of}: {text}" if of else text)

    def wait(self, what: str) -> None:
        """The work stands still until another process is done with `what`, which is no part of its time."""
        self.note(f"waits for {what}")

    def skip(self, steps: int) -> None:
        """This many steps will not begin."""

    def note(self, text: str) -> None:
        """A line that stays. A full or closed stream does not end the run."""
        self._shown = monotonic()
        with suppress(OSError):
            print(text, file=self._stream, flush=True)


class Quiet(Progress):
    """Shows nothing: for Python and its notebooks, where results show themselves."""

    def __init__(self) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class _Terminal(Progress):
    """A bar of steps done, the current one with its details, and the time it took so far."""

    def __init__(self, stream: TextIO, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self.bar = Bar(
            SpinnerColumn(),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self.bar.add_task("", total=total)
        self._step: str | None = None

    def begin(self, what: str) -> None:
        self.bar.update(self._task, description=what, advance=0 if self._step is None else 1)
        self._step = what

    def detail(self, text: str, of: str = "") -> None:
        self.bar.update(self._task, description=f"{of or self._step}: {text}")

    def skip(self, steps: int) -> None:
        self.bar.update(self._task, advance=steps)

    def note(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)


@contextmanager
def progress(total: int, stream: TextIO | None = None) -> Iterator[Progress]:
    """Progress over `total` steps on `stream` (stderr by default)."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield Progress(stream)
        return
    terminal = _Terminal(stream, total)
    with terminal.bar:
        yield terminal
