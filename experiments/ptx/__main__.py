"""Run a kernel of a CUDA or PTX file: `python -m experiments.ptx --help`."""

import sys
from collections.abc import Collection, Sequence
from functools import partial

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.texts import quoted


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    given = words(sys.argv[1:] if argv is None else argv)
    return run_task(partial(_run, {word.partition("=")[0] for word in given}), "ptx", given)


def words(argv: Sequence[str]) -> list[str]:
    """The command line as Hydra reads it.

    Of two words that stand alone the first is `file`, the second `launch`; all -DNAME=VALUE are one mapping `define`.
    """
    defined = [word for word in argv if word.startswith("-D") and word[2:].partition("=")[0].isidentifier()]
    others = [word for word in argv if word not in defined]
    keys, made = ["file", "launch"], list[str]()
    for before, word in zip(["", *others], others, strict=False):
        alone = "=" not in word and not word.startswith("-") and not before.startswith("-")
        made.append(f"{keys.pop(0)}={quoted(word)}" if alone and keys else word)
    pairs = (word[2:].partition("=") for word in defined)
    macros = [f"{name}:{quoted(value) if equals else 'null'}" for name, equals, value in pairs]
    return [*made, *([f"define={{{','.join(macros)}}}"] if macros else [])]


def _run(given: Collection[str], cfg: DictConfig) -> int:
    from experiments.ptx.sweep import run  # imports numpy and the decoder, which take longer than --help

    return run(cfg, given)


if __name__ == "__main__":
    raise SystemExit(main())
