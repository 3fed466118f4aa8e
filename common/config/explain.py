"""Errors of Hydra and OmegaConf as LabErrors, with the key, the known names, and a remedy."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf

from common.errors import LabError, known, unknown
from common.stacks.catalog import read_catalog

NO_CHOICES = ("gpu", "hydra")  # folders of conf/ that hold other yaml
STATE = RLock()  # Hydra has one state for all threads of a process
SEVERAL = "write a stack as stack=[a,b], a list as [1,2], quote a text with a comma, or run each value with -m"


@contextmanager
def hydra_of(root: Path) -> Iterator[None]:
    """Hydra for conf/ below `root`, in one thread at a time. Its state is put back afterwards, as a program had it."""
    with STATE:
        before = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(version_base="1.3", config_dir=str(root / "conf")):
                yield
        finally:
            GlobalHydra.instance().hydra = before


def check_choice(group: str, name: str, root: Path) -> None:
    """Raise LabError for a list, of which Hydra would take the last name, and for a single name that is unknown."""
    folder = root / "conf" / group
    if not group.isidentifier() or group in NO_CHOICES or not folder.is_dir():
        return
    if name.startswith("["):
        raise LabError(f"{group} takes one name, not the list {name}", SEVERAL)
    names = [path.stem for path in folder.glob("*.yaml")]
    for one in name.strip("'\"").split(","):  # with -m each is a job
        if group == "variant" and one not in names and one in (broken := read_catalog(root).broken):
            raise broken[one]  # a source without a yaml
        if group == "model" and "/" in one:
            raise LabError(f"model={one} is no name of a shape", f"give weights={one} if it is a checkpoint")
        if group == "variant" and "+" in one:  # as tables name a stack
            raise LabError(f"variant={one} is no name", f"give stack=[{one.replace(' ', '').replace('+', ',')}]")
        if re.fullmatch(r"[\w./:@~-]*", one):
            known(group, one, names)


def explain(error: Exception, config_name: str, arguments: Sequence[str], root: Path) -> LabError:
    """An error of Hydra or OmegaConf as a LabError with cause and remedy."""
    message, broken = str(error).strip(), read_catalog(root).broken
    if isinstance(error.__cause__, LabError):  # raised by a resolver
        return error.__cause__
    for name in _chosen(arguments):  # a broken variant's keys are unknown: its own error comes first
        if name in broken:
            return broken[name]
    if isinstance(error, OverrideParseException):
        return LabError(
            f"cannot read '{error.override.lstrip('+')}'",
            """write key=value, a list as [1,2], and quote text with special characters: 'key="a, b"'""",
        )
    if override := re.match(r"Could not override '([^']+)'", message):
        return _unknown_key(override[1], config_name, arguments, root)
    if message.startswith("Ambiguous value"):
        return LabError(message.splitlines()[0].replace("++", ""), SEVERAL)
    first = message.splitlines()[0] if message else type(error).__name__
    return LabError(first, "correct the override or the yaml; --cfg job prints the composed configuration")


def _chosen(arguments: Sequence[str]) -> list[str]:
    """The names given by variant= and stack=."""
    pairs = (argument.partition("=") for argument in arguments)
    return [name for key, _, value in pairs if key in ("variant", "stack") for name in re.findall(r"\w+", value)]


def _unknown_key(key: str, config_name: str, arguments: Sequence[str], root: Path) -> LabError:
    """The error for an unknown key such as `timing.stpes=3`: it lists the keys of the same section.

    The section is composed with the groups chosen in `arguments`, because its keys depend on them.
    """
    groups = {path.name for path in (root / "conf").iterdir() if path.is_dir()} - {key}
    chosen = [argument for argument in arguments if argument.partition("=")[0] in groups and "," not in argument]
    with hydra_of(root):
        config = compose(config_name, chosen)
    path, dot, _ = key.rpartition(".")
    siblings = OmegaConf.select(config, path) if path else config
    if not isinstance(siblings, DictConfig):
        path, dot, siblings = "", "", config
    valid = [f"{path}{dot}{name!s}" for name in siblings]
    return unknown("key", key, [*valid, *read_catalog(root).knobs] if "variant" in siblings else valid)
