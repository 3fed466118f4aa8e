"""Cost of synchronization: grid barriers, nodes of a CUDA graph, launches, and exchanges, alone and beside reading."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from common.compile.source import Source, kernel_text
from common.devices.hold import Hold
from common.errors import Crashed, LabError, Refused
from common.lazy import cupy
from common.model.layout import MAX_BLOCKS, Layout
from common.model.shapes import Model
from experiments.experiment import Experiment
from experiments.tables.result_table import COUNTED, ResultTable
from experiments.timing.rounds import MECHANISMS, Rounds, weights, words

KERNELS = Path(__file__).with_suffix(".cu")
OPERATIONS = 225  # for a published token: seven or eight for each of 28 layers
ROUNDS = 140  # in a launch: the exchanges by value of a token of 28 layers
ROUNDS_BESIDE = 56  # in a launch that reads: some hundreds of MB, so that nothing is left in L2
CPU_ROUNDS = 8  # in any launch without a GPU, which is only counted
REPEATS = 20
QUESTION = f"what a barrier, a node of a graph, a launch and an exchange cost, {OPERATIONS} or some tens in a row"
NOTES = (
    "Median of 20 runs. Launches are queued after a kernel that keeps the GPU busy: no time of the host is in the "
    "figures. The published ones, RTX 3090: 0.73 us a grid.sync, 0.83 us a graph node, 1.54 us a launch.",
    "Exchanges are those of the variants, compiled from their text: every block publishes its share of the words and "
    "waits for all of them, and for one barrier of its threads. exposed us: what a round takes longer than the same "
    "reading alone.",
)


class Operation(NamedTuple):
    """One way to order stages. barrier: its struct in sync_cost.cu; each: how many of them one launch does."""

    name: str
    barrier: str
    launch: str
    each: int


OPERATION = (
    Operation("cooperative barrier", "Cooperative", "cooperative", OPERATIONS),
    Operation("atomic counter", "Counter", "plain", OPERATIONS),
    Operation("queued launch", "Nothing", "plain", 1),
)
SHAPE = Model("sync", 8, 8, 1, 1, 1, 8, 8, 256, 1e4, 1e-6, True)  # the smallest with a position for each operation


def ask(experiment: Experiment) -> ResultTable:
    """A row for each operation and grid. Without a GPU each is run once, to see that it works, and counted."""
    experiment.check_given(())  # no variant runs here with its knobs
    options, device = experiment.options, cast(Any, experiment.device)
    most = device.multiprocessors if experiment.on_gpu else options.whole("cpu_blocks", 1, MAX_BLOCKS)
    sizes, windows = options.wholes("words", low=8), options.wholes("windows", low=1)
    kb, rows = options.whole("round_kb", 1, 1 << 10), []

    def add(operation: str, blocks: int, work: Callable[[], dict[str, Any]], sha: str = "", **about: Any) -> Any:
        """Make a row, and return its figures, if there are any. sha: of the kernel that `work` runs."""
        what = "".join(f", {name}={value}" for name, value in about.items())
        figures = experiment.row(f"{operation}, {blocks} blocks{what}", work, source=sha)
        if figures:
            rows.append({"operation": operation, "blocks": blocks, **about, **figures})
        return figures

    for count in dict.fromkeys(sizes):
        for mechanism in MECHANISMS:
            _round(experiment, add, Rounds(mechanism, count, most))
        for window in dict.fromkeys(windows):
            alone = _round(experiment, add, Rounds(None, count, most, kb, window))
            for mechanism in MECHANISMS:
                _round(experiment, add, Rounds(mechanism, count, most, kb, window), alone)
    for blocks in grids(most):
        for operation in OPERATION:
            source = kernel(operation, experiment.config.threads)
            add(operation.name, blocks, partial(_work, experiment, source, OPERATIONS, blocks), source.sha)
        if experiment.on_gpu:
            add("graph node", blocks, partial(_graph_node, blocks, experiment.config.threads))
    missing = "microseconds, and nodes of a graph; here everything only ran, and was counted"
    return experiment.answer(QUESTION, rows, NOTES, (COUNTED, missing), keys=2)


def grids(most: int) -> list[int]:
    """1, 2, 4, ... and `most` blocks."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def kernel(operation: Operation, threads: int) -> Source:
    """The text of one operation, built as decode kernels are."""
    entry = [f"struct Kernel : sync::Meetings<sync::{operation.barrier}> {{}};", f"KERNEL_ENTRY(Kernel, {threads}, 1)"]
    text = kernel_text(Layout(SHAPE), threads, [KERNELS], entry)
    name = operation.name.replace(" ", "_")
    return Source((name,), SHAPE, threads, {}, operation.launch, operation.each, 1, 75, text)


def _round(experiment: Experiment, add: Callable[..., Any], rounds: Rounds, alone: Any = None) -> Any:
    """Make the row of `rounds`. alone: figures of the same reading without exchanges."""
    many = CPU_ROUNDS if not experiment.on_gpu else ROUNDS_BESIDE if rounds.kb else ROUNDS
    beside = {"KB read": rounds.kb, "window": rounds.window} if rounds.kb else {}
    place = rounds.mechanism or "reading alone", rounds.blocks
    try:
        source = rounds.source(experiment.catalog, experiment.config.threads, many)
    except LabError as error:
        unfit = error.cause
        return add(*place, lambda: {"us": None, "why not": unfit}, words=rounds.words, **beside)

    def work() -> dict[str, Any]:
        found = _work(experiment, source, many, rounds.blocks)
        if alone and alone.get("us") and found.get("us"):
            found["exposed us"] = found["us"] - alone["us"]
        return found

    return add(*place, work, source.sha, words=rounds.words, **beside)


def _work(experiment: Experiment, source: Source, steps: int, blocks: int) -> dict[str, Any]:
    """Time or count `steps` steps, and check the words that rounds leave. Raises Crashed."""
    device: Any = experiment.device
    try:
        program = device.compile(source)
        with closing(device.session(program, weights(source.model), blocks)) as session:
            session.reset([0] * (source.model.positions + 1), position=0)
            if experiment.on_gpu:
                session.time(steps, 1)
                # One run at a time: of a launch that does nothing, no more would fit into the stream's queue.
                found = {"us": 1e6 * float(np.median([session.time(steps, 1) for _ in range(REPEATS)]))}
            else:
                counts = session.count(steps)
                found = {"block barriers": counts.total("block_barriers"), "atomics": counts.total("atomics")}
            if source.model != SHAPE:  # a barrier alone leaves no words: a block that goes on too early changes none
                _counted(source, session)
            return found
    except Refused as error:
        return {"us": None, "why not": error.cause}


def _counted(source: Source, session: Any) -> None:
    """Raise Crashed unless each word of the last round has the number of rounds."""
    found, expected = words(source, session.scratch()), source.model.layers
    if (wrong := found[found != expected]).numel():
        cause = f"words of the last round: {wrong[0].item():,.0f} in place of {expected:,}"
        raise Crashed(cause, "run it again; if the error repeats, test the GPU's memory")


def _graph_node(blocks: int, threads: int) -> dict[str, float]:
    """us: microseconds of one node of a graph of empty kernels that follow each other."""
    empty = cupy.RawKernel('extern "C" __global__ void empty() {}', "empty")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        empty((blocks,), (threads,), ())
        stream.synchronize()
        stream.begin_capture()
        for _ in range(OPERATIONS):
            empty((blocks,), (threads,), ())
        graph = stream.end_capture()

    @contextmanager
    def finished() -> Iterator[None]:
        with stream:
            yield
        stream.synchronize()

    times = Hold(cupy).seconds(lambda: graph.launch(stream), REPEATS + 1, 1, finished)
    return {"us": 1e6 * float(np.median(times[1:])) / OPERATIONS}
