"""Keys of a run that other commands refuse and leave out of their help."""

from omegaconf import DictConfig

from common.config.section import Section
from common.errors import LabError

RUNS = ("experiment", "resume", "timing", "archs", "budget_s", "row_s")
UNUSED = {  # {a command in errors: (its yaml, keys of a run without effect on it)}
    "a coverage run": ("coverage", RUNS),
    "a generation": ("generate", (*RUNS, "timeout_s", "validate")),
    "a profile": ("profiles", (*RUNS, "timeout_s", "json")),
    "a server": ("serve", (*RUNS, "timeout_s", "validate", "json")),
}


def refuse_runs_keys(cfg: DictConfig, what: str) -> None:
    """Raise LabError if a key without effect on `what`, of which `cfg` is the configuration, was given."""
    from common.config.cli import composed  # imports Hydra, which a worker does without

    command, keys = UNUSED[what]
    given, usual = (Section.from_config(config).values for config in (cfg, composed(command, [])))
    for key in keys:
        own = "task" if key == "experiment" else key  # set by a yaml in experiment/
        if given[own] != usual[own]:
            raise LabError(f"{key}= has no effect on {what}", "leave it out, or run python -m experiments")
