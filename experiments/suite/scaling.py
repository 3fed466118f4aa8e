"""Scaling: rate and share of the read floor over models of growing size; a megakernel against graphs and Triton."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from common.config.resolve import SYNTHETIC, model_named
from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.shapes import Model
from common.stacks.stack import Stack
from experiments.engines.arms import ARMS
from experiments.engines.race import Workload
from experiments.experiment import Experiment
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet
from experiments.tables.result_table import ResultTable
from experiments.tables.row import label_of

TRITON = "Triton"  # in ARMS
MODEL = "qwen3_0_6b"  # stands in conf/experiment/scaling.yaml: only its number of positions counts
QUESTION = "where the advantage of a megakernel ends as the weights grow"
FLOOR = "% of the read floor"
NOTES = (
    "Read floor: all that a token reads, once, at the rate at which the GPU reads alone; a step that needs twice that "
    "time is at 50 %, and one that finds some of it in L2 can be above 100 %. faster: the more tokens a second of the "
    "first stack.",
    "graph: the baseline's own stages, each as a kernel; synthetic weights.",
)
RACED = "Triton: medians by the host's clock, the prompt not included; stacks of this lab by the GPU's."


def ask(experiment: Experiment) -> ResultTable:
    """A row for each model, the smallest first, measured on a GPU.

    Every model has the formats of the run, and a cache of the size of the run's.
    """
    models = sorted(models_of(experiment), key=lambda model: model.matrix_weights)
    names = experiment.options.texts("variants")
    if not models or len(names) < 2:
        raise LabError("options.models or options.variants leaves nothing to compare", "give a model, and two stacks")
    stacks = experiment.stacks(names)
    experiment.need_gpu()
    rows = [row for model in models if (row := _measured(experiment, model, stacks))]
    return experiment.answer(QUESTION, rows, (*NOTES, RACED, *ends(rows, stacks)), keys=2)


def models_of(experiment: Experiment) -> list[Model]:
    """The models of the options. Raises LabError for weights= and model=, which would have no effect."""
    config, task = experiment.config, f"experiment={experiment.config.task}"
    if config.weights != SYNTHETIC:
        raise LabError(f"weights= has no effect on {task}, whose models have synthetic ones", "leave it out")
    form, head, kv = config.formats

    def model(name: str) -> Model:
        return replace(model_named(name), positions=experiment.model.positions).in_formats(form or "bf16", head, kv)

    if experiment.model != model(MODEL):
        remedy = f"give options.models=[{experiment.model.shape}]; model.positions= is the size of every cache"
        raise LabError(f"model= has no effect on {task}", remedy)
    return [model(name) for name in experiment.options.texts("models")]


def _measured(experiment: Experiment, model: Model, stacks: Sequence[Stack]) -> dict[str, Any] | None:
    """The row of one model with synthetic weights; None if no stack was timed."""
    config = replace(experiment.config, model=model, weights=SYNTHETIC)
    own = Experiment(config, experiment.show)
    records = own.measure(stacks, experiment.position)
    timed = {
        _name(stack): record["latencies"][0]
        for stack, record in zip(stacks, records, strict=True)
        if record["latencies"]
    }
    triton = dict(own.row(TRITON, partial(_triton, config, experiment.position), model=model.name) or {})
    experiment.left_out.extend(own.left_out)
    if not timed:
        return None
    rates = {name: 1 / found["seconds"]["median"] for name, found in timed.items()}
    first = next(iter(timed.values()))
    ceiling = first["bandwidth"] / first["of_ceiling"]
    gpu = str(records[0]["device"]["gpu"])
    row = _row(gpu, model, model.bytes_per_token(experiment.position), ceiling, rates | triton)
    if (name := _name(stacks[0])) in rates:
        others = {other: rate for other, rate in (rates | triton).items() if other != name}
        row |= {f"faster than {other} %": 100 * (rates[name] / rate - 1) for other, rate in others.items()}
    return row


def _triton(config: RunConfig, position: int) -> Mapping[str, float]:
    """Tokens a second of the Triton arm, in a process of its own. Raises LabError where it does not pass."""
    return {TRITON: apart(config.timeout_s, _rate_of_triton, config, position)}


def _rate_of_triton(config: RunConfig, position: int) -> float:
    lab = Setup(config, Quiet())
    prompt = tuple(1 + at % 5 for at in range(max(1, position)))
    (run,) = ARMS[TRITON].run(Workload(lab, (prompt,), config.options.whole("tokens", low=2))).runs
    if run.rate is None:
        raise LabError(f"Triton made {len(run.ids)} tokens, which give no rate", "raise options.tokens")
    return run.rate


def _row(gpu: str, model: Model, size: int, rate: float, rates: Mapping[str, float]) -> dict[str, Any]:
    """rate: bytes a second that the GPU reads; rates: tokens a second by system."""
    row: dict[str, Any] = {
        "gpu": gpu,
        "model": model.name,
        "MB a token": size / 1e6,
        "read floor us": 1e6 * size / rate,
    }
    row |= {f"{name} tok/s": each for name, each in rates.items()}
    return row | {f"{name} {FLOOR}": 100 * each * size / rate for name, each in rates.items()}


def ends(rows: Sequence[Mapping[str, Any]], stacks: Sequence[Stack]) -> Iterator[str]:
    """For each GPU and rival the first model from which on the first stack is not faster, if there is one."""
    for gpu, other in product(dict.fromkeys(row["gpu"] for row in rows), [*map(_name, stacks[1:]), TRITON]):
        known = [row for row in rows if row["gpu"] == gpu and f"faster than {other} %" in row]
        gains = [row[f"faster than {other} %"] for row in known]
        held = next((at for at in range(len(gains), 0, -1) if gains[at - 1] > 0), 0)
        if known and held == len(known):
            span = f"from {known[0]['model']} to {known[-1]['model']}, by {gains[-1]:.1f} % at the last"
            yield f"{gpu}: {_name(stacks[0])} is faster than {other} {span}."
        elif known:
            yield f"{gpu}: the advantage of {_name(stacks[0])} over {other} ends at {known[held]['model']}."


def _name(stack: Stack) -> str:
    return label_of(stack, own=False)
