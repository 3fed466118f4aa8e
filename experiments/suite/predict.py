"""Predicted time of a token on GPUs that are not at hand, from counts and SASS, beside published ones."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from common.stacks.catalog import read_catalog
from common.stacks.stack import prefixes, title
from experiments.experiment import Experiment
from experiments.prediction import designs, gpus
from experiments.prediction.forecast import forecast
from experiments.prediction.gpus import GpuModel
from experiments.prediction.prediction import Prediction
from experiments.prediction.published import GAINS, RATES, error, errors, gain, meets
from experiments.tables.result_table import PREDICTED, ResultTable
from experiments.tables.row import label_of

QUESTION = "how long a step takes on a GPU that is not at hand, by a model, and how far that is from published rates"
MODEL = (
    "Model: loads, multiplication and exchanges of the busiest SM as events, experiments/prediction/simulation.py. "
    "Bytes, barriers and prefetches are counted; dependent chains in a block and the loads in flight together are "
    "walked in SASS, experiments/prediction/sass/; latencies and rates come from conf/gpu/. low and "
    "high: the shortest and the longest time that their ranges there allow: all at their fast ends, all at their slow "
    "ends, and draws between. An estimate that can be too fast or too slow, no bound."
)
DECLARED = "of other kernels: as conf/design/ describes them, nothing counted or compiled"


def ask(experiment: Experiment) -> ResultTable:
    """A row for each GPU and stack at the given position, each published figure, and each step of a ladder."""
    keys = experiment.options.texts("gpus") or tuple(gpus.names())
    position, named = experiment.position, experiment.options.texts("variants")
    stacks = [experiment.stack(name) for name in named]
    experiment.check_given(stacks)
    models = [experiment.predictor.gpu(key) for key in keys]
    rows: list[dict[str, Any]] = []
    for gpu in models:
        figures = [figure for figure in RATES if figure.gpu == gpu.key]
        published = {(figure.stack, figure.position) for figure in figures}
        for stack in stacks:
            name = label_of(stack, own=False)
            time = partial(experiment.predictor.predict, stack.variants, stack.knobs, gpu, position)
            if (name, position) not in published and (predicted := experiment.attempt(name, time)):
                rows.append(line(gpu, name, position, predicted))
        for figure in figures:  # with the knobs that the published kernel has
            stack = experiment.choose(figure.stack, {})
            predicted = experiment.predictor.predict(stack.variants, stack.knobs, gpu, figure.position)
            name = label_of(stack, own=False)
            rows.append(line(gpu, name, figure.position, predicted, figure.rate, figure.system))
        rows += _declared(experiment, gpu) if named else []
    gains = gains_of(experiment) if "rtx3090" in keys and named else {}
    notes = [MODEL, f"Rows {DECLARED}.", *errors(rows, gains), *unreached(rows)]
    notes += [
        f"{gpu.key}: {', '.join(gpu.measured)} are measured; the other constants come from its yaml."
        for gpu in models
        if gpu.measured
    ]
    missing = "a check: `experiment=ablation` measures, and `roofline` and `sync_cost` replace the assumed constants"
    return ResultTable("predict", QUESTION, rows, PREDICTED, [*notes, *claims(gains)], missing)


def line(
    gpu: GpuModel, stack: str, position: int, time: Prediction, rate: float | None = None, system: str = ""
) -> dict[str, Any]:
    """A row of the table; `rate` is the published one."""
    return {
        "gpu": gpu.key,
        "stack": stack,
        "position": position,
        **time.columns(),
        "published us": rate and 1e6 / rate,
        "published tok/s": rate,
        "error %": rate and error(time.rate, rate),
        "in range": None if rate is None else "yes" if time.low <= 1 / rate <= time.high else "no",
        "system": system,
    }


def _declared(experiment: Experiment, gpu: GpuModel) -> Iterator[dict[str, Any]]:
    """Published kernels on `gpu`, and the steps of ladders at position 1 and where a goal is."""
    for design in designs.published():
        if us := design.published.get(gpu.key):
            yield line(gpu, "declared", 1, design.predict(gpu), 1e6 / us, design.name)
    for ladder in (ladder for ladder in designs.ladders() if gpu.key in ladder.gpus):
        built = experiment.choose(ladder.built, {})
        for names, position in product(prefixes(built.variants, read_catalog()), sorted({1, *ladder.goals})):
            predict = partial(experiment.predictor.predict, names, built.knobs, gpu, position)
            if time := experiment.attempt(title(names), predict):
                yield line(gpu, title(names), position, time, system=f"{ladder.built}: a step of it")


def unreached(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence on the published rates that no constants within their ranges give."""
    names = [
        f"{row['system']} at {row['position']} ({row['published tok/s']:.0f} tok/s)"
        for row in rows
        if row["in range"] == "no"
    ]
    return [f"Published rates that no constants in their ranges give: {'; '.join(names)}."] if names else []


def gains_of(experiment: Experiment) -> dict[str, tuple[float, float]]:
    """Predicted intervals of the changes in GAINS, in percent of tokens a second: RTX 3090, position 1."""
    predictor, intervals = experiment.predictor, {}
    for name in GAINS:
        work = partial(forecast, predictor, experiment.stack(name), predictor.gpu("rtx3090"), 1)
        if (found := experiment.attempt(name, work)) and (interval := gain(found)):
            intervals[name] = interval
    return intervals


def claims(gains: Mapping[str, tuple[float, float]]) -> list[str]:
    """Paragraphs on the published gains: met by the predicted intervals, and missed."""
    texts: dict[bool, list[str]] = {True: [], False: []}
    for name, (low, high) in gains.items():
        text = f"{name} {GAINS[name]:+g} % (predicted {low:+.1f} to {high:+.1f} %)"
        texts[meets(name, (low, high))].append(text)
    words = {
        True: "Published gains in tokens a second that the model meets",
        False: "Published gains that no draw of the constants gives",
    }
    return [f"{words[met]}: {'; '.join(some)}." for met, some in texts.items() if some]
