"""From the command line to a task: Hydra composes, and every mistake ends as one line and exit code 2."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from unittest.mock import patch

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.catalog import ROOT, read_catalog
from common.errors import LabError
from common.suggest import unknown

MISTAKE, INTERRUPTED = 2, 130
MULTIRUN = ("-m", "--multirun")
Task = Callable[[DictConfig], int]


def launch(task: Task, config_name: str, argv: Sequence[str], root: Path = ROOT) -> int:
    """Compose conf/<config_name>.yaml below `root` with the overrides in `argv` and run `task` on it.

    Returns the exit code: the task's own, 2 for a mistake, 130 when interrupted; of a multirun the highest.
    Results go to stdout; the one line `error: cause; remedy` to stderr, after a traceback with debug=true.
    """
    debug = "debug=true" in argv
    codes: list[int] = []
    failed = False  # by a fault of the task and not by one of the command line

    def job(cfg: DictConfig) -> None:
        nonlocal failed
        try:
            codes.append(task(cfg))
        except LabError as error:  # told here, so that the other jobs of a multirun go on
            codes.append(_tell(error, debug))
        except OmegaConfBaseException as error:
            codes.append(_tell(_explain(error, config_name, arguments, root), debug))
        except Exception:
            failed = True
            raise

    try:
        _register_resolvers(root)
        argv = sorted(argv, key=lambda argument: argument not in MULTIRUN)  # argparse wants it first or last
        arguments = _admit_knobs(argv, read_catalog(root).knobs)
        _check_flags(arguments)
        # Hydra would print its own errors and exit; with this variable it raises them.
        with patch.dict(os.environ, HYDRA_FULL_ERROR="1"), patch.object(sys, "argv", [config_name, *arguments]):
            hydra.main(version_base="1.3", config_path=str(root / "conf"), config_name=config_name)(job)()
    except LabError as error:
        return _tell(error, debug)
    except KeyboardInterrupt:
        print("error: interrupted; records already written are kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `... | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as done:  # --help and the like
        return int(done.code or 0)
    except Exception as error:
        if failed:
            raise
        return _tell(_explain(error, config_name, arguments, root), debug)
    return max(codes, default=0)


def _tell(error: LabError, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"error: {error}", file=sys.stderr)
    return MISTAKE


def _register_resolvers(root: Path) -> None:
    """`${root:}`, `${cache_home:}` (XDG) and `${knobs:}` (the knobs, for --help) may stand in yaml."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    values = {"root": lambda: str(root), "cache_home": lambda: str(home), "knobs": lambda: _knob_help(root)}
    for name, value in values.items():
        OmegaConf.register_new_resolver(name, value, replace=True)


def _knob_help(root: Path) -> str:
    variants = read_catalog(root).variants.values()
    lines = [
        f"  {variant.name + '  ' + knob.name + '=' + str(knob.default):<36} {knob.describe():<18} {knob.help}"
        for variant in variants
        for knob in variant.knobs
    ]
    return "\n".join(lines) or "  (no variant has one yet)"


def _admit_knobs(argv: Sequence[str], knobs: Collection[str]) -> list[str]:
    """`ratio=2:6` becomes `++ratio=2:6` where a variant has that knob.

    Only the yaml of a single variant puts its knobs into the configuration; with `variant=all` or `stack=[...]`
    Hydra would refuse the key before anything can be said about it. Whether what runs takes it is checked later.
    """
    keys = [argument.partition("=")[0] for argument in argv]
    if "stack" in keys and "variant" in keys:
        raise LabError("both stack= and variant= are given", "give the one or the other")
    return [
        f"++{argument}" if key in knobs and "=" in argument else argument
        for key, argument in zip(keys, argv, strict=True)
    ]


def _check_flags(arguments: Sequence[str]) -> None:
    """Refuse, in one line, what argparse would answer with a page."""
    parser = get_args_parser()

    def refuse(message: str) -> None:
        raise LabError(message, "give key=value, or see --help")

    parser.error = refuse  # type: ignore[method-assign]
    parser.parse_args([argument for argument in arguments if argument != "--version"])


def _explain(error: Exception, config_name: str, arguments: Sequence[str], root: Path) -> LabError:
    """What Hydra or OmegaConf complains about, as cause and remedy."""
    message = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return unknown(group, name, error.options)
    if isinstance(error, OverrideParseException):
        return LabError(
            f"cannot read '{error.override.lstrip('+')}': {error.message.splitlines()[0]}",
            """write key=value, a list as [1,2], and quote text with special characters: 'key="a, b"'""",
        )
    if key := re.match(r"Could not override '([^']+)'", message):
        return _unknown_key(key[1], config_name, arguments, root)
    if ambiguous := re.match(r"Ambiguous value for argument '([^']+)'", message):
        key, _, value = ambiguous[1].lstrip("+").partition("=")
        return LabError(f"{key} has several values: {value}", f"for a list write {key}=[{value}]; to run each, add -m")
    first = message.strip().splitlines()[0] if message.strip() else type(error).__name__
    return LabError(first, "correct the override or the yaml; --cfg job shows what is composed")


def _unknown_key(key: str, config_name: str, arguments: Sequence[str], root: Path) -> LabError:
    """The error for `timing.stpes=3`: the keys beside it under the groups that were chosen, the closest first."""
    groups = {path.name for path in (root / "conf").iterdir() if path.is_dir()} - {key}
    if key == "gpu":
        return LabError("gpu= chooses nothing by itself", "give options.gpu=NAME to an experiment that predicts")
    chosen = [argument for argument in arguments if argument.partition("=")[0] in groups and "," not in argument]
    with initialize_config_dir(version_base="1.3", config_dir=str(root / "conf")):
        config = compose(config_name, chosen)
    path, dot, _ = key.rpartition(".")
    siblings = OmegaConf.select(config, path) if path else config
    if not isinstance(siblings, DictConfig):
        path, dot, siblings = "", "", config
    known = [f"{path}{dot}{name}" for name in siblings]
    return unknown("key", key, known if path else [*known, *read_catalog(root).knobs])
