"""Check of the sweeps of a multirun: one without a value would end without a job, a word or an error."""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override

from common.errors import LabError


def check_sweeps(overrides: Sequence[str], root: Path) -> None:
    """Raise LabError for one of `overrides` that sweeps over nothing, such as `variant=glob(nope*)`."""
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override() and not _values(override, root):
            text = override.input_line
            raise LabError(f"{text} stands for no value, so nothing would run", "see --help for what there is")


def _values(override: Override, root: Path) -> list[str]:
    value = override.value()
    if isinstance(value, Glob):
        folder = root / "conf" / override.get_key_element().lstrip("+~")
        return value.filter([file.stem for file in folder.glob("*.yaml")])
    return list(override.sweep_string_iterator())
