"""Processes of the lab, forked from a server that has imported torch: 0.1 s of a core, not 1.7."""

import os
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from typing import Any

import torch

SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(["experiments.run.worker"])  # imports what takes longest


class Forking:
    """The context of multiprocessing that experiments/processes.py uses in a test."""

    Pipe = SERVER.Pipe

    @staticmethod
    def Process(target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> Any:  # noqa: N802
        return SERVER.Process(target=_as_spawned, args=(os.sched_getaffinity(0), target, args), daemon=daemon)


def _as_spawned(cores: set[int], begin: Callable[..., None], args: tuple[Any, Any, Mapping[str, str]]) -> None:
    """`begin`, with the cores of the parent and the number of threads that torch would read when it is imported."""
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(int(args[2].get("OMP_NUM_THREADS", len(cores))))
    begin(*args)
