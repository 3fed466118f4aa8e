"""Roofline: bandwidth of the ways to read, and the place of every variant below it; bytes of each stage."""

from typing import Any

from common.compile.source import Source
from common.devices.counters import Counts
from common.errors import LabError
from common.model.stages import DEFINITIONS, LAYER, STAGES
from experiments.experiment import Experiment
from experiments.tables.result_table import COUNTED, ResultTable
from experiments.tables.row import label_of, microseconds
from experiments.timing.bandwidth import Memory

QUESTION = "how fast this GPU's memory is, and where every variant is below that; what each stage must read"
INTENSITY = (
    "A token has one multiplication and one addition for each bf16 weight, about 1 FLOP a byte: far left of the ridge "
    "of every GPU, so bandwidth is the limit."
)
CEILING = "Decoding only reads, so the faster of the ways to read is its ceiling."


def ask(experiment: Experiment) -> ResultTable:
    """Rows of probes and of variants on a GPU; without one, of the bytes of each stage, as GPU time is not to count."""
    if not experiment.on_gpu:
        experiment.check_given(())  # the bytes are the baseline's
        if experiment.options.values["variants"]:
            raise LabError(f"options.variants has no effect on device={experiment.config.device.name}", "leave it out")
        gpu, stages = experiment.gpu, _stages(experiment)
        for row in stages:
            row[f"estimate us, {gpu.name}"] = 1e3 * row["MB"] / gpu.read_gbps
        missing = "bandwidths, and the place of each variant"
        return experiment.answer(QUESTION, stages, [INTENSITY], (COUNTED, missing), keys=2)
    variants = _variants(experiment, experiment.position)  # first: with the probes, two processes share the GPU
    with experiment.exclusive_gpu():
        probes = _probes()
    best = max(row["GB/s"] for row in probes)
    rows = [row | {"% of best read": 100 * row["GB/s"] / best} for row in (*probes, *variants)]
    return experiment.answer(QUESTION, rows, [CEILING, INTENSITY], keys=2)


def _stages(experiment: Experiment) -> list[dict[str, Any]]:
    """Bytes of each stage of the baseline, over all layers."""
    counting = experiment.counting
    source = counting.source((), {})
    counts = counting.count(source)
    sizes = {stage: stage_bytes(source, counts, stage, experiment.position) for stage in STAGES}
    total = sum(sizes.values())
    rows = [
        {"kind": "stage", "what": stage, "MB": size / 1e6, "share %": 100 * size / total}
        for stage, size in sizes.items()
    ]
    return [*rows, {"kind": "step", "what": "all stages", "MB": total / 1e6, "share %": 100.0}]


def stage_bytes(source: Source, counts: Counts, stage: str, position: int) -> float:
    """Bytes that a stage must get out of memory over all layers, each once however many blocks read them."""
    of, model = DEFINITIONS[stage], source.model
    if of.gains:
        return 2 * of.gains(model) * (model.layers if stage in LAYER else 1)
    copied = 0 if of.cached else counts.of(stage, "copied_async") + counts.of(stage, "copied_bulk")
    weights = copied + sum(counts.bytes_by_width("weights", stage).values())
    return weights + (model.kv_bytes_per_position * (position + 1) if of.cached else 0)


def _variants(experiment: Experiment, position: int) -> list[dict[str, Any]]:
    size = experiment.model.bytes_per_token(position)
    if not experiment.options.given("variants"):
        experiment.check_given(())
        return []
    return [
        {
            "kind": "variant",
            "what": label_of(stack),
            "MB": size / 1e6,
            "us": microseconds(timed),
            "GB/s": size / microseconds(timed) / 1e3,
        }
        for stack, latencies in experiment.latencies(experiment.chosen())
        for timed in latencies
        if timed["position"] == position
    ]


def _probes() -> list[dict[str, Any]]:
    """Bandwidth of each way to use memory: the best of some long launches over 2 GiB, or half of the free memory."""
    return [
        {"kind": "probe", "what": f"read, {way.way}", "MB": way.size / 1e6, "us": 1e6 * way.size / way.best}
        | {"GB/s": way.best / 1e9}
        for way in Memory().read()
    ]
