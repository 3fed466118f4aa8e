"""Fenced blocks of a page, executed as they stand: `python tests/pages.py docs/PAGE.md`, in a copy of the lab.

A path in backquotes alone above a block: the block is that file, or is added to its end. Other Python is executed. Each
command of a shell block runs in this process, on the PTX device with the tiny model. Two tables list exceptions,
each with its reason: the configurations of COMPOSED are made and checked only, LEFT is not started. Lines of `make`
are what `make -n` prints. A text that begins with `$ COMMAND` has lines that the command prints, but for numbers and
names of stages; another text is a picture.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from common.config import cli
from common.config.resolve import resolve, split
from common.model.stages import STAGES
from common.stacks.catalog import read_catalog

BLOCK = re.compile(r"(?:^`(?P<path>[\w./-]+)`\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- generated:.*?<!-- /generated -->", re.DOTALL)  # tests/test_report.py compares them
CHECKPOINTS = ("DIR", "Qwen/Qwen3-0.6B")  # the pages' names of weights are folders here
COMPOSED = {
    r"^experiments$": "all variants: minutes",
    r"^experiments -m ": "several runs",
    r"^experiments .*\b(variant=ladder|validate=full|model=qwen3_0_6b)\b": "minutes",
    r"^tests\.strength\.coverage\b": "every trial: tests/ptx/test_covered.py",
    r"^experiments .*\bexperiment=": "full size: minutes",
    r"^experiments\.evidence\b": "a GPU, or hours: tests/test_evidence_plan.py",
    r"^experiments\.report\b": "it writes the committed pages: tests/test_report.py",
    r"^experiments\.serve\b": "only a signal ends it: tests/test_serve_start.py",
    r"^profiles .*\btool=(nsys|ncu)\b": "NVIDIA's tools: tests/test_nsight.py",
}
LEFT = {
    r"^\. ": "a shell's own",
    r"^pip ": "a network",
    r"^curl ": "a running server: tests/test_serve.py",
    r"^python -m experiments -m hydra/launcher=": "a cluster: tests/cpu/test_launchers.py",
    r"^python -m experiments\.ptx FILE": "a file of the reader's: docs/ptx.md has one",
    r"^\S+ -m pytest\b": "the tests themselves",
}
# Tests of what is committed that list all variants, experiments and shapes: two new files leave them green.
LISTING = (
    "test_catalog.py",
    "test_headers.py",
    "test_help.py",
    "test_report.py",
    "-k",
    "my_ or shipped or line or records",
)
Commands = Iterator[list[str]]


def executed(text: str) -> bool:
    """True if a page has a block that is more than a picture."""
    return any(found["language"] != "text" or found["text"].startswith("$ ") for found in BLOCK.finditer(text))


class Page:
    """One page, from its first block to its last."""

    def __init__(self, path: Path) -> None:
        self.path, self.names, self.added = path, dict[str, Any](), False

    def run(self) -> None:
        text = GENERATED.sub(lambda made: "\n" * made[0].count("\n"), self.path.read_text())
        for block in BLOCK.finditer(text):
            print(f"{self.path}:{text[: block.start('text')].count(chr(10))}", flush=True)
            self.block(block["language"], block["text"], block["path"])
        if self.added:
            pytest = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *LISTING]
            subprocess.run(pytest, cwd="tests", check=True)

    def block(self, language: str, text: str, path: str | None) -> None:
        if path:
            with open(path, "a") as file:
                file.write(text)
            if "/" in path:  # a module of the lab
                self.added = True
                read_catalog.cache_clear()
        elif language == "python":
            with server() if "127.0.0.1:8000" in text else contextlib.nullcontext():
                exec(compile(text, str(self.path), "exec"), self.names)
        elif language == "sh":
            for words in commands(text):
                execute(words)
        elif text.startswith("$ "):
            shown, printed = text.splitlines(), io.StringIO()
            with contextlib.redirect_stdout(printed):
                for words in commands(shown[0][2:]):
                    execute(words, codes=(0, 1))
            missing = {*map(plain, shown[1:])} - {*map(plain, printed.getvalue().splitlines())}
            assert not missing, f"{missing} is not in {printed.getvalue()}"
        elif language != "text":  # a text without a command is a picture
            raise AssertionError(f"a block of {language} without a path above it is of no use to a reader")


def plain(line: str) -> str:
    """A line without its numbers and stages, which a seed decides, and without the borders of a table."""
    line = re.sub(rf"\b({'|'.join(STAGES)})\b|[+-]?\d[\w.,+-]*", "#", line)
    return re.sub(r"[━╇┃│\s]+", " ", line).strip()


def commands(text: str) -> Commands:
    """The words of each command; for a line of `make` the commands that it would start."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[: words.index("&&")]
            words = words[words.index("&&") + 1 :]
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words[:1] == ["make"]:
            argv = ["make", "-n", "STAMP=", *words[1:]]
            made = subprocess.run(argv, capture_output=True, text=True, check=True)
            yield from commands(made.stdout)
        elif words:
            yield words[: words.index("||")] if "||" in words else words


def execute(words: list[str], codes: Collection[int] = (0,)) -> None:
    """Run one command, or check as much of it as the two tables say. codes: 1 is of a result that the page shows."""
    command = shlex.join(words)
    if any(re.search(pattern, command) for pattern in LEFT):
        return
    assert Path(words[0]).name in ("python", "python3"), f"no rule for {command}"
    assert words[1] == "-m", f"no rule for {command}"
    package, argv = words[2], words[3:]
    name = f"{package}.__main__" if importlib.util.find_spec(package).submodule_search_locations else package
    module = importlib.import_module(name)
    if any(re.search(pattern, " ".join(words[2:])) for pattern in COMPOSED):
        before, cli._run = cli._run, lambda task, *rest: before(check, *rest)
        try:
            code = module.main(argv)
        finally:
            cli._run = before
    else:
        quick = ["validate=quick"] if package in ("experiments", "profiles") else []
        own = any(word.startswith(("experiment=", "archs=")) for word in argv) or 1 in codes  # its table is compared
        quick += ["archs=[]"] if package == "experiments" and not own else []  # other tests have what ptxas makes
        quick += ["blocks=2"] if "device=ptx" in argv else []  # each block of a grid takes as long as the first
        code = module.main([*argv, *quick])
    assert code in codes, f"{command}: exit code {code}"


def check(cfg: DictConfig) -> int:
    """A task that checks the configuration of another one."""
    if "variant" in cfg:
        catalog = read_catalog()
        _, rest = split(cfg, [str(key) for key in cfg if key not in catalog.keys | catalog.knobs])
        resolve(rest)
    return 0


@contextlib.contextmanager
def server() -> Iterator[None]:
    """Serve port 8000 with a formula as engine."""
    import openai
    from fake_engine import FakeDecoder
    from serving import serving

    client = openai.OpenAI
    with serving(partial(FakeDecoder, model="Qwen3-0.6B")) as running:
        openai.OpenAI = lambda **options: client(**options | {"base_url": f"{running.address}/v1"})
        try:
            yield
        finally:
            openai.OpenAI = client


if __name__ == "__main__":
    page = Path(sys.argv[1])
    gc.disable()  # what these commands import stays, and they are few
    atexit.register(gc.freeze)
    for checkpoint in CHECKPOINTS:
        if checkpoint in page.read_text():
            from trained import save_checkpoint  # imports transformers, in seconds

            os.makedirs(checkpoint)
            save_checkpoint(Path(checkpoint), seed=1)
    Page(page).run()
