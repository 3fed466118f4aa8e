"""Experiments, one in each module: `ask(experiment)` answers its question; conf/experiment/ has the yaml of each."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from traceback import extract_tb

from common.config.run_config import RunConfig
from common.errors import LabError, known
from common.stacks.stack import knob_words
from experiments.experiment import Experiment
from experiments.tables.commands import closing_lines
from experiments.tables.progress import progress
from experiments.tables.result_table import ResultTable, print_result, record_result


def names() -> list[str]:
    """All experiments, by the names of their modules."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def find(task: str) -> Callable[[Experiment], ResultTable]:
    """The `ask` of one experiment. Raises LabError for an unknown name."""
    return import_module(f"experiments.suite.{known('module of experiments/suite', task, names())}").ask


@contextmanager
def authored(task: str) -> Iterator[None]:
    """Raise LabError for an error of Python, with the last line of the experiment's module that it passed."""
    try:
        yield
    except (LabError, OSError, MemoryError):
        raise
    except Exception as error:
        lines = [f":{at.lineno}" for at in extract_tb(error.__traceback__) if at.filename.endswith(f"/suite/{task}.py")]
        cause = f"experiments/suite/{task}.py{''.join(lines[-1:])}: {type(error).__name__}: {error}"
        raise LabError(cause, "correct it; debug=true shows the traceback") from error


def answer(config: RunConfig) -> int:
    """Run the experiment `config.task`, append its result to the store and print it; returns the exit code 0."""
    with authored(config.task), progress(1) as bar:
        ask = find(config.task)
        experiment = Experiment(config, bar)
        experiment.store.check()
        bar.begin(f"experiment {config.task}, seed {config.seed}")
        result = ask(experiment)
        rows = result.rows
    if not rows:
        first, more = experiment.left_out[:1], len(experiment.left_out) - 1
        cause = "".join(first) + (f", and {more} more" if more > 0 else "") or "its options leave nothing to compare"
        raise LabError(f"experiment={config.task} has no row: {cause}", f"see conf/experiment/{config.task}.yaml")
    knobs = [f"Knobs: {' '.join(knob_words(config.knobs))}."] if config.knobs else []
    result = replace(result, notes=(*result.notes, *knobs, *experiment.left_out))
    about = {
        "model": experiment.model,
        "weights": Path(config.weights).name,
        "device": {"device": config.device.name, "why": config.device.why},
        "seed": config.seed,
        "threads": config.threads,
        "options": config.options.values,
        "knobs": config.knobs,
    }
    kept = record_result(result, experiment.store, about, config.device.bus_id)
    print_result(result, config.json)
    if config.json:  # a script sees which rows are missing
        print("".join(f"{line}\n" for line in experiment.left_out), end="", file=sys.stderr)
    else:
        print(closing_lines([kept], config.results))
    return 0
