"""Predicted time of a token on GPUs that are not at hand, from exact counts, with the error against published rates."""

from functools import partial
from typing import Any

import pandas as pd

from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.prediction import gpus
from experiments.prediction.gpus import GpuModel
from experiments.prediction.published import FIGURES, Figure, error, errors
from experiments.show.result_table import PREDICTED, ResultTable
from experiments.show.row import changed

QUESTION = "how long a step takes on a GPU that is not at hand, by a model, and how far that is from published rates"
MODEL = (
    "Model: per stage the larger of bytes / read rate and dependent loads x latency, plus one latency to start; plus "
    "grid barriers x their cost, plus a launch; prefetched bytes are subtracted as far as memory is idle and L2 holds "
    "them. It has no arithmetic, no shuffles and no clocks, and takes latencies and loads in flight as constants: an "
    "estimate that can be too fast or too slow, and no bound. See experiments/prediction/model.py."
)


def ask(experiment: Experiment) -> ResultTable:
    """A row for each GPU and stack at the given position, and one for each published figure."""
    options = experiment.options
    keys = options.texts("gpus") or tuple(gpus.names())
    position = options.whole("position", low=0)
    named = options.texts("stacks")
    stacks = experiment.stacks(named) if named else []
    experiment.check_knobs(stacks)
    found: list[dict[str, Any] | None] = []
    for gpu in map(experiment.predictor.gpu, keys):
        figures = [figure for figure in FIGURES if figure.gpu == gpu.key]
        done = {(figure.stack, figure.position) for figure in figures}
        found += [
            experiment.attempt(changed(stack), partial(_row, experiment, gpu, stack, position, None))
            for stack in stacks
            if (changed(stack), position) not in done
        ]
        for figure in figures:  # with the knobs that the published kernel has
            (stack,) = experiment.lab.choose(figure.stack, {})
            found.append(_row(experiment, gpu, stack, figure.position, figure))
    rows = [row for row in found if row]
    table = pd.DataFrame(rows)
    notes = [MODEL, *errors([row["error %"] for row in rows]), *_measured(map(experiment.predictor.gpu, keys))]
    if "rtx3090" in keys and experiment.model.name == "qwen3_0_6b":
        notes.append(reading(experiment, table))
    missing = "a check: `experiment=ablation` measures, and `roofline` and `sync_cost` replace the assumed constants"
    return ResultTable("predict", QUESTION, table, PREDICTED, notes, missing)


def _row(experiment: Experiment, gpu: GpuModel, stack: Stack, position: int, figure: Figure | None) -> dict[str, Any]:
    time = experiment.predictor.predict(stack.variants, stack.knobs, gpu, position)
    return {
        "gpu": gpu.key,
        "stack": changed(stack),
        "position": position,
        **time.columns(),
        "published tok/s": figure and figure.rate,
        "error %": figure and error(time.rate, figure.rate),
        "system": figure.system if figure else "",
    }


def reading(experiment: Experiment, table: pd.DataFrame) -> str:
    """A paragraph on predictions and published figures of the RTX 3090; each of its numbers is computed."""
    rows = {(row["stack"], row["position"]): row for row in table[table["gpu"] == "rtx3090"].to_dict("records")}
    start, norms, end, long = (
        rows[key] for key in (("baseline", 1), ("redundant_rmsnorm", 1), ("megaqwen", 1), ("megaqwen", 300))
    )
    model, gpu = experiment.model, experiment.predictor.gpu("rtx3090")
    gap = 1e6 / start["published tok/s"] - start["predicted us"]
    slope = (1e6 / long["published tok/s"] - 1e6 / end["published tok/s"]) / 299
    ours = (long["predicted us"] - end["predicted us"]) / 299
    bytes_alone = 1e6 * model.kv_bytes_per_position / gpu.read_rate
    rate = 530 * 2 * model.matrix_weights / 1e9
    saved = start["predicted us"] - norms["predicted us"]
    claimed = 1e6 / start["published tok/s"] - 1e6 / norms["published tok/s"]
    return (
        f"RTX 3090, against the published rates. The last build is predicted {end['error %']:+.0f} % off at position 1 "
        f"({end['predicted tok/s']:.0f} against {end['published tok/s']:.0f} tok/s) and {long['error %']:+.0f} % at "
        f"300; the first build {start['error %']:+.0f} %: at {start['published tok/s']:.0f} tok/s neither bytes nor "
        f"barriers account for {gap:.0f} us of a token. That build lost its time elsewhere (the same baseline also "
        "appears as 213.5 tok/s), so the gains reported against it are not those of the named changes alone: redundant "
        f"norms save {saved:.0f} us here, {claimed:.0f} us as published; prefetching saves {end['prefetched us']:.0f} "
        "us here and cannot double the rate, because memory is idle only during attention and barriers. With each "
        f"position the published time grows by {slope:.2f} us: the bytes take {bytes_alone:.2f} us, the model "
        f"predicts {ours:.2f} us. {model.heads} blocks with dependent loads explain a part; arithmetic and shuffles "
        "between the loads, which the model omits, may be the rest. The published 47 GB/s, 5 % of bandwidth, at 530 "
        f"tok/s is wrong by more than ten times: 530 tokens a second x {2 * model.matrix_weights / 1e9:.3f} GB is "
        f"{rate:.0f} GB/s, {100 * rate / gpu.bandwidth_gbps:.0f} % of the peak. Nor does synchronization bound the "
        f"design: at the published cost of a barrier, barriers are {end['barriers us']:.0f} of "
        f"{1e6 / end['published tok/s']:.0f} us."
    )


def _measured(found: "map[GpuModel]") -> list[str]:
    return [
        f"{gpu.key}: {', '.join(gpu.measured)} are measured; the other constants are those of its yaml."
        for gpu in found
        if gpu.measured
    ]
