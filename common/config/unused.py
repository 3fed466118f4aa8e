"""Keys of a run that other commands, and some experiments, refuse; commands leave them out of their help."""

from functools import cache
from typing import Any

from omegaconf import DictConfig

from common.config.section import Section
from common.errors import LabError

RUNS = ("experiment", "resume", "timing", "archs", "budget_s", "row_s")
UNUSED = {  # {a command or an experiment in errors: (its yaml, keys of a run without effect on it)}
    "a Lab": ("lab", ("experiment", "timeout_s", "budget_s", "row_s", "json")),
    "a coverage run": ("coverage", RUNS),
    "a generation": ("generate", (*RUNS, "timeout_s", "validate")),
    "a profile": ("profiles", (*RUNS, "timeout_s", "json")),
    "a server": ("serve", (*RUNS, "timeout_s", "validate", "json")),
    "experiment=counts": ("config", ("timing", "validate", "blocks", "archs", "resume", "timeout_s")),
    "experiment=sass": ("config", ("timing", "validate", "blocks", "timeout_s")),
}


def refuse_runs_keys(cfg: DictConfig, what: str) -> None:
    """Raise LabError if a key without effect on `what`, of which `cfg` is the configuration, was given."""
    given, usual = Section.from_config(cfg).values, _usual(what)
    for key in UNUSED[what][1]:
        if given[key] != usual[key]:
            raise LabError(f"{key}= has no effect on {what}", "leave it out, or run python -m experiments")


@cache
def _usual(what: str) -> dict[str, Any]:
    from common.config.cli import composed  # imports Hydra, which a worker does without

    return Section.from_config(composed(UNUSED[what][0], [what] if "=" in what else [])).values
