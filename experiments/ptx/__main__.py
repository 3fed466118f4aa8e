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
    keys, made, macros = ["file", "launch"], list[str](), list[str]()
    for before, word in zip(["", *argv], argv, strict=False):
        key, equals, value = word.partition("=")
        if key.startswith("-D") and key[2:].isidentifier():
            macros.append(f"{key[2:]}:{quoted(value) if equals else 'null'}")
        else:
            alone = not equals and not word.startswith("-") and not before.startswith("-")
            made.append(f"{keys.pop(0)}={quoted(word)}" if alone and keys else word)
    return [*made, *([f"define={{{','.join(macros)}}}"] if macros else [])]


def _run(given: Collection[str], cfg: DictConfig) -> int:
    from experiments.ptx.sweep import run  # imports numpy and the decoder, which take longer than --help

    return run(cfg, given)


if __name__ == "__main__":
    raise SystemExit(main())
