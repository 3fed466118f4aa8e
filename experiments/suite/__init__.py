"""Experiments: each module here is one, and answers its question in `ask(inquiry)`; conf/experiment/ has their yaml."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from common.config import RunConfig
from common.suggest import unknown
from experiments.inquiry import Inquiry
from experiments.outcome import Outcome, keep, tell
from experiments.progress import progress


def names() -> list[str]:
    """All experiments, by the names of their modules."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def find(task: str) -> Callable[[Inquiry], Outcome]:
    """The `ask` of one experiment. Raises LabError for a name that is none."""
    if task not in names():
        raise unknown("task", task, ["run", *names()])
    return import_module(f"experiments.suite.{task}").ask


def answer(config: RunConfig) -> int:
    """Ask what `config.task` says, keep the outcome as a record and print it; returns the exit code 0."""
    ask = find(config.task)
    with progress(1) as bar:
        inquiry = Inquiry(config, bar)
        inquiry.store.check()
        bar.begin(f"experiment {config.task}, seed {config.seed}")
        outcome = ask(inquiry)
    outcome = replace(outcome, notes=(*outcome.notes, *inquiry.left_out))
    about = {
        "model": config.model,
        "weights": Path(config.weights).name,
        "device": {"device": config.device.name, "why": config.device.why},
        "seed": config.seed,
        "threads": config.threads,
        "options": config.options.values,
    }
    keep(outcome, inquiry.store, about)
    tell(outcome, config.json)
    return 0
