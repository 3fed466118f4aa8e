"""Command line: Hydra composes the configuration for a task; a mistake ends as one line with exit code 2."""

import os
import sys
import threading
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import NoReturn

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from common import ROOT
from common.cache.folder import ensure_home, place
from common.config import help
from common.config.explain import check_sweeps, explain, several
from common.config.streams import Stream, open_closed
from common.config.texts import admit_text
from common.errors import LabError, Unfinished
from common.errors.interrupt import INTERRUPTED, SAID
from common.errors.machine import system_errors
from common.stacks.catalog import read_catalog

MISTAKE, UNFINISHED = 2, 3
MULTIRUN = ("-m", "--multirun")
RAISE_ERRORS = "HYDRA_FULL_ERROR"  # without this variable Hydra prints its own errors and exits
_COMPOSING = threading.Lock()
Task = Callable[[DictConfig], int]


def run_task(
    task: Task,
    config_name: str,
    argv: Sequence[str] | None = None,
    root: Path = ROOT,
    after: Callable[[], None] = lambda: None,
) -> int:
    """Compose conf/<config_name>.yaml below `root` with the overrides in `argv` and run `task` on it.

    argv: None for this process's. after: called once when the job, or every job of a multirun, has ended, however it
    ended.
    Returns the exit code: the task's own, 2 for a mistake, 3 where a budget ended first, 130 when interrupted; of a
    multirun the highest.
    Results go to stdout; the one line `error: cause; remedy` to stderr, after a traceback with debug=true.
    """
    words = sys.argv[1:] if argv is None else argv
    debug = "debug=true" in words
    return guarded(lambda: _run(task, config_name, words, root, after, debug), debug)


def guarded(work: Callable[[], int], debug: bool = False) -> int:
    """The exit code of `work`, a whole command; a mistake or an interrupt is one line, as in `run_task`."""
    open_closed()
    with redirect_stdout(Stream(sys.stdout, True)), redirect_stderr(Stream(sys.stderr, False)):
        try:
            try:
                return work()
            finally:
                sys.stdout.flush()
        except LabError as error:
            return _print_error(error, debug)
        except KeyboardInterrupt:
            print(SAID, file=sys.stderr)
            return INTERRUPTED


def _run(task: Task, config_name: str, argv: Sequence[str], root: Path, after: Callable[[], None], debug: bool) -> int:
    arguments: list[str] = []
    codes: list[int] = []
    failed = False  # by an error in the code, not a mistake on the command line

    def job(cfg: DictConfig) -> None:
        nonlocal failed
        try:
            _set_names(cfg, HydraConfig.get().runtime.choices, root)
            with system_errors("the command cannot go on"):
                codes.append(task(cfg))
        except LabError as error:  # printed here, so that the other jobs of a multirun still run
            codes.append(_print_error(error, debug))
        except OmegaConfBaseException as error:
            codes.append(_print_error(explain(error, config_name, arguments, root), debug))
        except Exception:
            failed = True
            raise

    def once() -> None:
        config = _compose(config_name, arguments, root)
        before, HydraConfig.instance().cfg = HydraConfig.instance().cfg, None
        try:
            HydraConfig.instance().set_config(config)
            with flag_override(config, "struct", False):
                del config["hydra"]
            job(config)
        finally:
            HydraConfig.instance().cfg = before

    try:
        ensure_home()
        if not (root / "conf").is_dir():
            raise LabError(f"{root} has no conf/", "run from a checkout: pip install -e . in it")
        _register_resolvers(root)
        argv = sorted(argv, key=lambda argument: argument not in MULTIRUN)  # argparse needs the flag first or last
        arguments = _admit(argv, root)
        main = hydra.main(version_base="1.3", config_path=str(root / "conf"), config_name=config_name)(job)
        if "--version" in arguments:
            main = _print_version
        elif (flags := _read_flags(arguments)).help:
            main = partial(_print_help, config_name, flags.overrides, root)
        elif flags.multirun:
            check_sweeps(flags.overrides, root)
        elif flags.overrides == arguments:  # no flag: Hydra's main would compose twice, to see that it is no multirun
            main = once
        with _command(config_name, arguments):
            try:
                main()
            finally:
                after()
    except LabError:
        raise
    except SystemExit as done:  # --help, --version and other flags that only print
        return int(done.code or 0)
    except Exception as error:
        if failed:
            raise
        return _print_error(explain(error, config_name, arguments, root), debug)
    return max(codes, default=0)


@contextmanager
def _command(name: str, arguments: Sequence[str]) -> Iterator[None]:
    """Arguments and environment that Hydra reads, restored at the end; `unittest.mock` would import asyncio."""
    argv, errors = sys.argv, os.environ.get(RAISE_ERRORS)
    sys.argv, os.environ[RAISE_ERRORS] = [name, *arguments], "1"
    try:
        yield
    finally:
        sys.argv = argv
        if errors is None:
            del os.environ[RAISE_ERRORS]
        else:
            os.environ[RAISE_ERRORS] = errors


def composed(config_name: str, overrides: Sequence[str], root: Path = ROOT) -> DictConfig:
    """The configuration that `run_task` gives to a task, for Python: conf/<config_name>.yaml with `overrides`.

    Hydra has one state per process. It is left unchanged, so that this works in a notebook and in a program that uses
    Hydra itself; threads take turns. Raises LabError for a mistake.
    """
    arguments = _admit(overrides, root)
    try:
        config = _compose(config_name, arguments, root)
        with flag_override(config, "struct", False):
            choices = config.pop("hydra").runtime.choices
        _set_names(config, choices, root)
        OmegaConf.to_container(config, resolve=True)  # raises here if an interpolation fails
        return config
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise explain(error, config_name, arguments, root) from None


def _compose(config_name: str, arguments: list[str], root: Path) -> DictConfig:
    """The configuration with Hydra's own part. Hydra's state is left unchanged; its errors are raised as they are."""
    with _COMPOSING:
        _register_resolvers(root)
        before, base = GlobalHydra.instance().hydra, VersionBase.instance().version_base
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(version_base="1.3", config_dir=str(root / "conf")):
                return compose(config_name, arguments, return_hydra_config=True)
        finally:
            GlobalHydra.instance().hydra, VersionBase.instance().version_base = before, base


def _set_names(config: DictConfig, choices: Mapping[str, str | None], root: Path) -> None:
    """Set `name` in the section of each group to the name of its yaml. choices: {group: yaml}, by Hydra."""
    with flag_override(config, "struct", False):
        for group in read_catalog(root).keys & choices.keys():
            if isinstance(section := config.get(group), DictConfig):
                section["name"] = choices[group]


def _print_version() -> None:
    from common.record.provenance import lab_version

    print(f"megakernel-lab {lab_version()}")


def _print_help(config_name: str, overrides: Sequence[str], root: Path) -> None:
    topics = [word for word in overrides if "=" not in word]
    print("\n\n".join(help.about(config_name, topic, root) for topic in topics) or help.overview(config_name, root))


def _print_error(error: LabError, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, Unfinished):
        print(f"unfinished: {error}", file=sys.stderr)
        return UNFINISHED
    print(f"error: {error}", file=sys.stderr)
    return MISTAKE


def _register_resolvers(root: Path) -> None:
    """Define `${root:}`, `${user_cache:}` (default place of the cache) and `${folder:FILE}`."""
    values: dict[str, Callable[..., str]] = {
        "root": lambda: str(root),
        "user_cache": lambda: str(place()),
        "folder": os.path.dirname,
    }
    for name, value in values.items():
        OmegaConf.register_new_resolver(name, value, replace=True)


def _admit(argv: Sequence[str], root: Path) -> list[str]:
    """The arguments, with free texts passed through `admit_text`, and `ratio=2:6` as `++ratio=2:6` if ratio is a knob.

    Only the yaml of a single variant adds its knobs to the configuration. With `variant=all` or `stack=[...]` Hydra
    would refuse the key; `++` adds it. choose_stacks checks later that the chosen stacks have the knob.
    Raises LabError for values that Hydra would misunderstand: of a list in place of one name it takes the last.
    """
    pairs = [(key, value) for key, _, value in (argument.partition("=") for argument in argv)]
    if {"stack", "variant"} <= {key for key, _ in pairs}:
        raise LabError("both stack= and variant= are given", "give only one of them")
    for key, value in pairs:
        if value.startswith("[") and (root / "conf" / key).is_dir():
            raise LabError(f"{key} takes one name, not the list {value}", several(key, value.strip("[]"), root))
        if key.lstrip("+~").startswith("variant."):
            raise LabError(f"{key}= would change the description of a variant", "give a knob by its name: ratio=2:6")
    knobs = read_catalog(root).knobs
    return [
        f"++{argument}" if key in knobs and "=" in argument else admit_text(argument)
        for (key, _), argument in zip(pairs, argv, strict=True)
    ]


def _read_flags(arguments: Sequence[str]) -> Namespace:
    """Hydra's flags, and `overrides`. Raises LabError for an unknown flag; argparse would print its whole usage."""
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise LabError(message, "give key=value, or see --help")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(arguments)
