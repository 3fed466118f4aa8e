"""Choices that earlier runs make for this one: `variant=best`, and the seed of a run that resumes."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from common import ROOT
from common.config.device_choice import find_gpu
from common.config.resolve import resolve
from common.config.run_config import RunConfig
from common.errors import LabError
from common.record.record import RunRecord
from common.record.store import Store
from common.stacks.catalog import Catalog
from common.stacks.variant import NamedStack

MODEL, POSITION = "qwen3_0_6b", 1  # of `variant=best`, and of published figures


def run_config(cfg: DictConfig, root: Path = ROOT) -> RunConfig:
    """`resolve`, with the choices of the records below `root` and in `results`."""
    return resolve(cfg, root, fastest_stack, last_seed)


def last_seed(results: Path) -> int | None:
    """The seed of the last run in a file of records; None if it has no run."""
    runs = Store(results).read(RunRecord)
    return runs[-1].seed if runs else None


def fastest_stack(catalog: Catalog, threads: int) -> NamedStack | None:
    """The stack that a search found for this GPU; None without either. threads: per block."""
    try:
        wanted = tuned_for(find_gpu(), MODEL, POSITION, threads)
    except LabError:
        return None
    return next((stack for stack in catalog.tuned.values() if stack.tuned == wanted), None)


def tuned_for(gpu: str, model: str, position: int, threads: int) -> dict[str, Any]:
    """The `tuned` section of the yaml of a stack that a search found."""
    return {"gpu": gpu, "model": model, "position": position, "threads": threads}
