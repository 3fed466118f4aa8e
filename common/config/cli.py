"""Command line: Hydra composes the configuration for a task; a mistake ends as one line with exit code 2."""

import os
import shutil
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import hydra
from hydra import compose
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from common import ROOT
from common.cache.folder import place
from common.config import help
from common.config.explain import check_choice, explain, hydra_of
from common.config.texts import admit_text
from common.errors import LabError, Unfinished
from common.errors.machine import of_system, system_errors
from common.model.shapes import TRAITS
from common.stacks.catalog import read_catalog

MISTAKE, UNFINISHED, INTERRUPTED, PIPE_CLOSED = 2, 3, 130, 141
MULTIRUN = ("-m", "--multirun")
REFUSED = ("package", "shell_completion", "config_path", "config_name", "config_dir", "experimental_rerun")  # flags
COMPOSING = (HydraException, OmegaConfBaseException, YAMLError)  # errors of a configuration
Task = Callable[[DictConfig], int]


def run_task(task: Task, config_name: str, argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Compose conf/<config_name>.yaml below `root` with the overrides in `argv` and run `task` on it.

    argv: None for this process's.
    Returns the exit code: the task's own, 2 for a mistake, 3 where a budget ended first, 130 when interrupted; of a
    multirun the highest.
    Results go to stdout; the one line `error: cause; remedy` to stderr, after a traceback with debug=true.
    """
    words = sys.argv[1:] if argv is None else argv
    debug = "debug=true" in words
    return guarded(lambda: _run(task, config_name, words, root, debug), debug)


def guarded(work: Callable[[], int], debug: bool = False) -> int:
    """The exit code of `work`, a whole command; a mistake or an interrupt is one line, as in `run_task`."""
    _open_streams()
    try:
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # set by common/__init__.py
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with system_errors("the command cannot go on"):
            code = work()
            print(end="", flush=True)
    except LabError as error:
        code = _print_error(error, debug)
    except BrokenPipeError:  # as with `| head`
        code = PIPE_CLOSED
    except KeyboardInterrupt:
        _print_error(LabError("interrupted", "records already written are kept"))
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # on a full disk, too: what Python flushes at its end must not fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _open_streams() -> None:
    """Open /dev/null for a closed stream, whose number a file of the run would take; let stdout escape characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(task: Task, config_name: str, argv: Sequence[str], root: Path, debug: bool) -> int:
    if not (root / "conf").is_dir():
        raise LabError(f"{root} has no conf/", "run from a checkout: pip install -e . in it")
    argv = sorted(argv, key=lambda word: "=" in word and word[0] != "-")  # argparse refuses a flag between overrides
    arguments = _admit(argv, root)
    if "--version" in arguments:
        from common.record.provenance import lab_version

        print(f"megakernel-lab {lab_version()}")
        return 0
    flags = _read_flags(arguments)
    if flags.help:
        groups = [path.name for path in (root / "conf").iterdir() if path.is_dir()]
        topics = [word for word in flags.overrides if "=" not in word or word.partition("=")[0] in groups]
        about = (help.about(config_name, topic, root) for topic in topics)
        print("\n\n".join(about) or help.overview(config_name, root))
        return 0
    try:
        if flags.overrides != arguments:  # keys beside --hydra-help change nothing, as beside --help
            return _multirun(task, config_name, ["--hydra-help"] if flags.hydra_help else arguments, root, debug)
        if hydras := [argument for argument in arguments if argument.startswith(("hydra.", "hydra/"))]:
            raise LabError(f"{hydras[0]} has no effect without -m", "leave it out, or add -m")
        config, own = _composed(config_name, arguments, root)
        HydraConfig.instance().set_config(own)
        return task(config)
    except COMPOSING as error:
        raise explain(error, config_name, arguments, root) from error


def _multirun(task: Task, config_name: str, arguments: list[str], root: Path, debug: bool) -> int:
    """The highest exit code of all jobs, run by Hydra's main, which also has flags that only print, such as --cfg.

    Raises LabError for a job that failed in a launcher's process, from which only an exception returns.
    """
    if {*MULTIRUN} & {*arguments} and "hydra/launcher=gpu_slurm" in arguments and not shutil.which("srun"):
        raise LabError("hydra/launcher=gpu_slurm needs SLURM, and there is no srun", "give hydra/launcher=local_jobs")
    codes: list[int] = []
    here = os.getpid()

    def job(cfg: DictConfig) -> None:
        apart = os.getpid() != here
        try:
            _set_names(cfg, HydraConfig.get().runtime.choices, root)
            code = task(cfg)
        except LabError as error:  # printed here, so that the other jobs still run
            if apart:
                raise
            code = _print_error(error, debug)
        if apart and code:
            cause = f"a job ended with exit code {code}: {' '.join(HydraConfig.get().overrides.task)}"
            raise LabError(cause, "see its log; python -m experiments.show lists the records of all jobs")
        codes.append(code)

    _register_resolvers(root)
    before, sys.argv = sys.argv, [config_name, *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # without it Hydra prints errors itself, and exits
    try:
        hydra.main(version_base="1.3", config_path=str(root / "conf"), config_name=config_name)(job)()
    except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        raise of_system(error, "the folder of a multirun, beside its records, cannot be made") from error
    finally:
        sys.argv = before
    if not codes and set(arguments) & set(MULTIRUN):  # an empty sweep, or a launcher with processes of its own
        print(
            "note: no job ran in this process; python -m experiments.show lists their records, --help the choices",
            file=sys.stderr,
        )
    return max(codes, default=0)


def composed(config_name: str, overrides: Sequence[str], root: Path = ROOT) -> DictConfig:
    """The configuration that `run_task` gives to a task, for Python: conf/<config_name>.yaml with `overrides`.

    Hydra's one state per process is left unchanged, so that this works in a notebook and in a program that uses Hydra
    itself. Raises LabError for a mistake.
    """
    arguments = _admit(overrides, root)
    try:
        config, _ = _composed(config_name, arguments, root)
        OmegaConf.to_container(config, resolve=True)  # raises here if an interpolation fails
        return config
    except COMPOSING as error:
        raise explain(error, config_name, arguments, root) from None


def _composed(config_name: str, arguments: list[str], root: Path) -> tuple[DictConfig, DictConfig]:
    """The configuration, and a copy with Hydra's own part."""
    _register_resolvers(root)
    try:
        with hydra_of(root):
            config = compose(config_name, arguments, return_hydra_config=True)
    except ValueError as error:  # Hydra raises it, such as for a null in place of a name
        raise explain(error, config_name, arguments, root) from error
    own = config.copy()
    with flag_override(config, "struct", False):
        choices = config.pop("hydra").runtime.choices
    _set_names(config, choices, root)
    return config, own


def _set_names(config: DictConfig, choices: Mapping[str, str | None], root: Path) -> None:
    """Set `name` in each group's section, and `experiment`, to the name of its yaml. choices: {group: yaml}."""
    with flag_override(config, "struct", False):
        for group in read_catalog(root).keys & choices.keys():
            if isinstance(section := config.get(group), DictConfig):
                section["name"] = choices[group]
            elif group == "experiment":
                config[group] = choices[group]


def _print_error(error: LabError, debug: bool = False) -> int:
    kind, code = ("unfinished", UNFINISHED) if isinstance(error, Unfinished) else ("error", MISTAKE)
    with suppress(OSError):  # stderr is full, or nobody reads it
        if debug:
            traceback.print_exception(error)
        print(f"{kind}: {error}", file=sys.stderr)
    return code


def _register_resolvers(root: Path) -> None:
    """Define `${root:}`, `${user_cache:}` (default place of the cache) and `${folder:FILE}`."""
    OmegaConf.register_new_resolver("root", partial(str, root), replace=True)
    OmegaConf.register_new_resolver("user_cache", lambda: str(place()), replace=True)
    OmegaConf.register_new_resolver("folder", os.path.dirname, replace=True)


def _admit(argv: Sequence[str], root: Path) -> list[str]:
    """The arguments, with free texts passed through `admit_text`, and `ratio=2:6` as `++ratio=2:6` if ratio is a knob.

    Only the yaml of a single variant adds its knobs to the configuration. With `variant=all` or `stack=[...]` Hydra
    would refuse the key; `++` adds it. choose_stacks checks later that the chosen stacks have the knob. Traits of a
    model, which its yaml may omit, likewise. Raises LabError for values that Hydra would misunderstand.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise LabError("the working folder has been removed", "go to one that exists") from None
    argv = [argument.lstrip("+") for argument in argv]  # every key is there: with a + Hydra would add an unknown one
    parts = [argument.partition("=") for argument in argv]
    if {"stack", "variant"} <= {key for key, _, _ in parts}:
        raise LabError("both stack= and variant= are given", "give only one of them")
    for key, equals, value in parts:
        if equals:  # else a topic of --help
            check_choice(key, value, root)
        if key.startswith("~"):
            raise LabError(f"{key} would remove a key, and every key is needed", "give it a value: key=value")
        if key.startswith("variant."):
            raise LabError(f"{key}= would change the description of a variant", "give a knob by its name: ratio=2:6")
        if key in ("task", "options"):
            raise LabError(f"{key}= is for the yaml of an experiment", "give experiment=NAME, and options.KEY=VALUE")
    added = read_catalog(root).knobs | {f"model.{trait}" for trait in TRAITS}
    return [
        f"++{argument}" if key in added and equals else admit_text(argument)
        for (key, equals, _), argument in zip(parts, argv, strict=True)
    ]


def _read_flags(arguments: Sequence[str]) -> Namespace:
    """Hydra's flags, and `overrides`. Raises LabError for an unknown flag; argparse would print its whole usage."""
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise LabError(message, "give key=value, or see --help")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(arguments)
    for name in REFUSED:
        if getattr(flags, name):
            refuse(f"unrecognized arguments: --{name.replace('_', '-')}")
    if flags.resolve and not flags.cfg:
        refuse("--resolve says how --cfg prints")
    modes = [name for name in ("run", "multirun", "cfg", "info") if getattr(flags, name)]
    if len(modes) > 1:
        refuse(f"--{modes[0]} and --{modes[1]} exclude each other")
    return flags
