"""Errors of Hydra and OmegaConf as LabErrors, with the key, the known names, and a remedy."""

import re
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from common.config.texts import TEXTS
from common.errors import LabError, unknown
from common.stacks.catalog import read_catalog


def explain(error: Exception, config_name: str, arguments: Sequence[str], root: Path) -> LabError:
    """An error of Hydra or OmegaConf as a LabError with cause and remedy."""
    message, broken = str(error), read_catalog(root).broken
    if isinstance(error.__cause__, LabError):  # raised by a resolver
        return error.__cause__
    for name in _chosen(arguments):  # a broken variant's keys are unknown: its own error comes first
        if name in broken:
            return broken[name]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return unknown(group, name, error.options)
    if isinstance(error, OverrideParseException):
        return LabError(
            f"cannot read '{error.override.lstrip('+')}': {error.message.splitlines()[0]}",
            """write key=value, a list as [1,2], and quote text with special characters: 'key="a, b"'""",
        )
    if override := re.match(r"Could not override '([^']+)'", message):
        return _unknown_key(override[1], config_name, arguments, root)
    if ambiguous := re.match(r"Ambiguous value for argument '([^']+)'", message):
        key, _, value = ambiguous[1].lstrip("+").partition("=")
        return LabError(f"{key} has several values: {value}", several(key, value, root))
    if message.startswith("Config group override must be"):
        return _no_name(arguments, root)
    if isinstance(error, OSError) and error.filename:  # Hydra makes a folder for the jobs of a multirun
        return LabError(f"{error.filename} cannot be written: {error.strerror}", "give hydra.sweep.dir=FOLDER")
    first = message.strip().splitlines()[0] if message.strip() else type(error).__name__
    return LabError(first, "correct the override or the yaml; --cfg job prints the composed configuration")


def check_sweeps(overrides: Sequence[str], root: Path) -> None:
    """Raise LabError for an override that sweeps over nothing, such as `variant=glob(nope*)`; Hydra accepts it."""
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override() and not _sweep(override, root):
            text = override.input_line
            raise LabError(f"{text} is an empty sweep, so nothing would run", "see --help for the choices")


def _sweep(override: Override, root: Path) -> list[str]:
    value = override.value()
    if isinstance(value, Glob):
        folder = root / "conf" / override.get_key_element().lstrip("+~")
        return value.filter([file.stem for file in folder.glob("*.yaml")])
    return list(override.sweep_string_iterator())


def several(key: str, value: str, root: Path) -> str:
    """Remedy for several values of a key."""
    if key == "variant":
        return f"as one stack: stack=[{value}]; one by one: -m variant={value}"
    each = f"to run each, add -m: {key}={value}"
    if key in TEXTS:
        return f"""quote a text that has a comma: {key}='"{value}"'; {each}"""
    return each if (root / "conf" / key).is_dir() else f"for a list write {key}=[{value}]; {each}"


def _chosen(arguments: Sequence[str]) -> list[str]:
    """The names given by variant= and stack=."""
    pairs = (argument.partition("=") for argument in arguments)
    return [name for key, _, value in pairs if key in ("variant", "stack") for name in re.findall(r"\w+", value)]


def _no_name(arguments: Sequence[str], root: Path) -> LabError:
    """The error for the first override of a group that names no file, such as `model=5` or `device=null`."""
    given = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    groups = (one for one in OverridesParser.create().parse_overrides(given) if _group(one, root).is_dir())
    wrong = next(one for one in groups if not isinstance(one.value(), str | list))
    names = [path.stem for path in _group(wrong, root).glob("*.yaml")]
    return unknown(wrong.key_or_group, wrong.get_value_element_as_str(), names)


def _group(override: Override, root: Path) -> Path:
    return root / "conf" / override.key_or_group


def _unknown_key(key: str, config_name: str, arguments: Sequence[str], root: Path) -> LabError:
    """The error for an unknown key such as `timing.stpes=3`: it lists the keys of the same section.

    The section is composed with the groups chosen in `arguments`, because its keys depend on them.
    """
    groups = {path.name for path in (root / "conf").iterdir() if path.is_dir()} - {key}
    if key == "gpu":
        return LabError("gpu= alone has no effect", "give options.gpu=NAME to an experiment that estimates")
    chosen = [argument for argument in arguments if argument.partition("=")[0] in groups and "," not in argument]
    with initialize_config_dir(version_base="1.3", config_dir=str(root / "conf")):
        config = compose(config_name, chosen)
    path, dot, _ = key.rpartition(".")
    siblings = OmegaConf.select(config, path) if path else config
    if not isinstance(siblings, DictConfig):
        path, dot, siblings = "", "", config
    valid = [f"{path}{dot}{name!s}" for name in siblings]
    return unknown("key", key, [*valid, *read_catalog(root).knobs] if "variant" in siblings else valid)
