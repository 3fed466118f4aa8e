"""Proof of a stack on a trial: build its kernel for the trial's model and threads, and validate it."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.compile.source import Source, build
from common.devices.protocol import Device, Session
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.stacks.catalog import Catalog
from common.stacks.stack import Stack, equals_parent
from common.stopwatch import part
from common.validate.check import validate
from common.validate.scenarios import drawn
from common.validate.tolerances import ReferenceSteps
from common.validate.trials import GIVEN, HIGH, Trial
from common.validate.values import weights_of
from common.validate.verdict import Verdict

OLD_RING = "PASSED_TILES"  # macro of common/kernel/ring.cuh: tiles passed by a ring before a launch


def prove(
    device: Device,
    catalog: Catalog,
    stack: Stack,
    trial: Trial,
    cache: Path,
    seed: int,
    edit: Callable[[str], str] = lambda text: text,
    on_step: Callable[[int, str], None] = lambda done, scenario: None,
) -> Verdict:
    """Validate `stack` on `trial`, and compare it with its parent if they must be equal bit for bit.

    cache: folder of packed weights and of the reference's steps. seed: of weights, inputs and, on the PTX device, the
    order of threads. edit: changes the kernel's flattened text, but not its parent's. on_step: as of `validate`.
    Raises CompileError, Hung, Crashed and Refused, each with the trial's name.
    """
    trial, (own, *others) = texts(catalog, stack, trial)
    layout, weights, reference = expected(trial.model, trial.weights, cache, seed)
    starts = drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed))
    with _named(trial), ExitStack() as opened:

        def open_session(source: Source) -> Session:
            with part("compile"):
                program = device.compile(source)
            return opened.enter_context(closing(device.session(program, weights, trial.blocks)))

        session = open_session(replace(own, text=edit(own.text)))
        parent = open_session(others[0]) if others else None
        verdict = validate(session, weights, starts, seed, reference, on_step, parent)
    if verdict.mismatch:
        return replace(verdict, mismatch=verdict.mismatch.noted(f"trial: {trial.name}"))
    return verdict


def texts(catalog: Catalog, stack: Stack, trial: Trial) -> tuple[Trial, list[Source]]:
    """The trial with positions for all tokens of the stack's steps, and the texts that `prove` compiles for it.

    They are the stack's, and its parent's if the two must be equal bit for bit.
    """
    source = text_of(catalog, stack, trial)
    if (roomy := trial.with_room(source.tokens_per_step)) != trial:
        source = text_of(catalog, stack, roomy)
    if not equals_parent(stack, catalog):
        return roomy, [source]
    return roomy, [source, text_of(catalog, replace(stack, variants=stack.parent), roomy)]


def compile_all(device: Device, sources: Iterable[Source]) -> None:
    """Compile all texts side by side; a failure is reported where its text is needed."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wait([pool.submit(device.compile, source) for source in {one.text: one for one in sources}.values()])


@contextmanager
def _named(trial: Trial) -> Iterator[None]:
    try:
        yield
    except LabError as error:
        error.cause = f"{error.cause} (trial: {trial.name})"
        raise


def text_of(catalog: Catalog, stack: Stack, trial: Trial) -> Source:
    """The flattened text of `stack` for the model, the block size and the knob values of `trial`."""
    names = {*stack.variants, *stack.parent}
    knobs = {name: _constants(catalog, name, stack.knobs.get(name, {}), trial) for name in names}
    source = build([catalog.variants[name] for name in stack.variants], trial.model, trial.threads, knobs)
    if not trial.tiles or not any(catalog.variants[name].loader_warps for name in stack.variants):
        return source  # without a ring the kernel is the same
    return replace(source, text=f"#define {OLD_RING} {trial.tiles}u\n{source.text}")


def _constants(catalog: Catalog, name: str, known: Mapping[str, Any], trial: Trial) -> dict[str, int | str]:
    """The constants of one variant's knobs. known: the stack's, for another block size."""
    found: dict[str, int | str] = {}
    for knob in catalog.variants[name].knobs:
        if trial.knobs == GIVEN:
            value = knob.fitted(knob.value(known), trial.threads)
        else:
            value = knob.ends(trial.threads)[trial.knobs == HIGH]
        found |= knob.constants(value, trial.threads)
    return found


@lru_cache(maxsize=32)  # all that the trials have
def expected(model: Model, kind: str, cache: Path, seed: int) -> tuple[Layout, Tensor, ReferenceSteps]:
    """Layout, weights and reference of a model, shared by all stacks; the reference's steps also between processes."""
    packed = load("synthetic", model, None, cache / "weights", seed)[2]
    layout = Layout(model)
    weights = weights_of(kind, packed.flat, layout, seed)
    # By content: the code behind these values may have changed since the folder was filled.
    sha = hashlib.sha256(weights.view(torch.uint8).numpy().data).hexdigest()
    return layout, weights, ReferenceSteps(layout, weights, "cpu", cache / "references", sha)
