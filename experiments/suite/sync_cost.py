"""Cost of synchronization: four grid barriers, nodes of a CUDA graph, launches, exchanges by value under load."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from common.compile.source import Source, kernel_text
from common.devices.hold import Hold
from common.errors import Refused
from common.model.layout import MAX_BLOCKS, Layout
from common.model.shapes import Model
from experiments.experiment import Experiment
from experiments.tables.result_table import COUNTED, ResultTable
from experiments.timing.exchange import NOTHING, PAUSE, WORDS, Exchange, Load, text

KERNELS = Path(__file__).with_suffix(".cu")
OPERATIONS = 225  # for a published token: seven or eight for each of 28 layers
REPEATS = 20
QUESTION = f"what a barrier, a node of a graph and a launch cost, {OPERATIONS} in a row in kernels that do nothing else"
NOTES = (
    "Median of 20 runs. Launches are queued after a kernel that keeps the GPU busy: no time of the host is in the "
    "figures. The published ones, RTX 3090: 0.73 us a grid.sync, 0.83 us a graph node, 1.54 us a launch.",
    f"exchange by value: {WORDS:,} words, each with a sentinel until its value arrives, from all SMs to all, while "
    f"other warps load; {PAUSE} ns between two polls, as in the kernels, or no pause. counted adds: every block adds "
    "to each of as many counters. slowest SM: its rate of loading, beside the median one's.",
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
    Operation("flag per block", "Flags", "plain", OPERATIONS),
    Operation("two levels", "TwoLevel", "plain", OPERATIONS),
    Operation("queued launch", "Nothing", "plain", 1),
)
# Only its state counts: a line for each block where the token ids are.
SHAPE = Model("sync", 8, 8, 1, 1, 1, 8, 8, 32 * (MAX_BLOCKS + 8), 1e4, 1e-6, True)


def ask(experiment: Experiment) -> ResultTable:
    """A row for each operation and grid. Without a GPU each is run once, to see that it works, and counted."""
    experiment.check_given(())  # no variant runs here
    rows = []

    def add(operation: str, blocks: int, work: Callable[[], dict[str, Any]], sha: str = "", beside: str = "") -> None:
        """Make a row. sha: of the kernels that `work` runs."""
        if figures := experiment.row(f"{operation}{beside}, {blocks} blocks", work, source=sha):
            rows.append({"operation": operation, "blocks": blocks, **figures})

    if experiment.on_gpu:
        _exchanges(add)
    _orders(experiment, add)
    missing = "microseconds, nodes of a graph, and exchanges under load; here the barriers only ran, and were counted"
    return experiment.answer(QUESTION, rows, NOTES, (COUNTED, missing), keys=2)


def _orders(experiment: Experiment, add: Callable[..., None]) -> None:
    """Barriers, launches and nodes of a graph, on growing grids."""
    device: Any = experiment.device
    weights = torch.zeros(Layout(SHAPE).weights_size, dtype=torch.bfloat16)
    threads = experiment.config.threads

    def work(source: Source, blocks: int) -> dict[str, Any]:
        program = device.compile(source)
        try:
            with closing(device.session(program, weights, blocks)) as session:
                return _run(session, experiment.on_gpu)
        except Refused as error:
            return {"us": None, "why not": error.cause}

    most = device.multiprocessors if experiment.on_gpu else experiment.options.whole("cpu_blocks", 1, MAX_BLOCKS)
    for blocks in grids(most):
        for operation in OPERATION:
            source = kernel(operation, threads)
            add(operation.name, blocks, partial(work, source, blocks), source.sha)
        if experiment.on_gpu:
            add("graph node", blocks, partial(_graph_node, blocks, threads))


def grids(most: int) -> list[int]:
    """1, 2, 4, ... and `most` blocks."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def kernel(operation: Operation, threads: int) -> Source:
    """The text of one operation, built as decode kernels are."""
    entry = [f"struct Kernel : sync::Meetings<sync::{operation.barrier}> {{}};", f"KERNEL_ENTRY(Kernel, {threads}, 1)"]
    text = kernel_text(Layout(SHAPE), threads, [KERNELS], entry)
    name = operation.name.replace(" ", "_")
    return Source((name,), SHAPE, threads, {}, operation.launch, operation.each, 1, 75, text)


def _run(session: Any, timed: bool) -> dict[str, Any]:
    session.reset([0] * (SHAPE.positions + 1), position=0)
    if not timed:
        counts = session.count(OPERATIONS)
        return {"block barriers": counts.total("block_barriers"), "atomics": counts.total("atomics")}
    session.time(OPERATIONS, 1)
    # One run at a time: of a launch that does nothing, no more would fit into the stream's queue.
    return {"us": 1e6 * float(np.median([session.time(OPERATIONS, 1) for _ in range(REPEATS)]))}


def _exchanges(add: Callable[..., None]) -> None:
    """Exchanges beside each load, with and without pauses, and the counted adds, once; a block on each SM."""

    def work(exchange: Exchange, load: Load) -> dict[str, Any]:
        timed = exchange.under(load)
        loaded = {"GB/s": timed.rate / 1e9, "slowest SM %": 100 * timed.slowest} if load.under_way else {}
        return {"us": 1e6 * timed.round_s, "beside": load.name, "KB under way": load.under_way / 1024, **loaded}

    def adds(exchange: Exchange) -> dict[str, Any]:
        return {"us": 1e6 * exchange.adds()}

    for pause in (PAUSE, 0):
        exchange, sha = Exchange(pause=pause), hashlib.sha256(text(pause).encode()).hexdigest()
        operation = "exchange by value" if pause else "exchange by value without a pause"
        for load in (NOTHING, *exchange.loads):
            add(operation, exchange.blocks, partial(work, exchange, load), sha, f" beside {load.name}")
        if pause:
            add("counted adds", exchange.blocks, partial(adds, exchange), sha)


def _graph_node(blocks: int, threads: int) -> dict[str, float]:
    """us: microseconds of one node of a graph of empty kernels that follow each other."""
    import cupy

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
