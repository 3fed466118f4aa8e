"""The judge and the race of every arm: the same prompts, the same number of new tokens, the same clock."""

import gc
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor

from common.devices.protocol import Session
from common.errors import Mismatched
from common.validate.check import validate
from common.validate.scenarios import scenarios
from experiments.engines.transformers_model import causal_lm
from experiments.run.setup import Setup
from experiments.run.torch_decoder import prefill

WARM_UPS = 3  # runs before the first that counts: one compiles, one records a graph, one replays it
RUNS = 5
# What an arm shows: every stage; the last one and its cache; or only the ids that it chose.
STAGES, LOGITS, IDS = "stages", "logits, cache, ids", "ids"


@dataclass(frozen=True)
class Run:
    """New ids after one prompt, with medians over the runs.

    first: seconds until the first token, prompt included. rate: tokens a second after the first one; None without any.
    spread: the fastest rate minus the slowest, as a share of `rate`.
    """

    ids: Sequence[int]
    first: float
    rate: float | None
    spread: float = 0.0


@dataclass(frozen=True)
class Ran:
    """One arm's runs, one for each prompt. validated: by what an arm shows."""

    runs: Sequence[Run]
    peak_bytes: int | None = None
    validated: str = IDS


@dataclass(frozen=True)
class Workload:
    """Prompts of growing length, number of new tokens and weights, the same for every arm."""

    lab: Setup
    prompts: tuple[tuple[int, ...], ...]
    tokens: int

    @property
    def device(self) -> str:
        return "cuda" if self.lab.config.device.name == "cuda" else "cpu"

    @property
    def dtype(self) -> torch.dtype:
        """Type of activations: bf16 on a GPU; float32 on a CPU, where only the chosen ids count."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    @cached_property
    def weights(self) -> Tensor:
        """Flat bf16 weights where torch computes."""
        return self.lab.packed.flat.to(self.lab.reference_device)

    def transformers_model(self) -> Any:
        return causal_lm(self.lab.layout, self.lab.packed.flat, self.dtype, self.device)

    def entries(self, prompt: Sequence[int]) -> Tensor:
        """Entries of all ids of a prompt but the last, as torch computes them for the lab's kernels."""
        m = self.lab.model
        none = torch.empty(m.layers, 2, m.kv_heads, 0, m.head_dim, dtype=torch.bfloat16)
        return prefill(self.lab.layout, self.weights, prompt[:-1], none)


Arrived = Callable[[int], None]  # called once, with the number of tokens that have come first
Generate = Callable[[Arrived], Sequence[int]]


def timed(opened: Callable[[tuple[int, ...]], Generate], work: Workload) -> Ran:
    """Time `opened(prompt)(arrived)`, which answers a prompt with `work.tokens` tokens, after some runs to warm up.

    What `opened` does for a prompt is not counted. Peak memory is that of the race, without what judged the arm. On a
    CPU only the answer counts, and each runs once.
    """
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    warm_ups, runs = (WARM_UPS, RUNS) if work.device == "cuda" else (0, 1)

    def race(prompt: tuple[int, ...]) -> Run:
        generate = opened(prompt)

        def run() -> tuple[Sequence[int], float, float | None]:
            """New ids, the seconds until the first came, and the rate of the later ones."""
            came: list[tuple[float, int]] = []
            start = _now(work)
            ids = generate(lambda tokens: came.append((_now(work), tokens)))
            end = _now(work)
            first, tokens = came[0]
            return ids, first - start, (len(ids) - tokens) / (end - first) if len(ids) > tokens else None

        for _ in range(warm_ups):
            run()
        answers, firsts, rates = zip(*(run() for _ in range(runs)), strict=True)
        known = [rate for rate in rates if rate]
        rate = median(known) if known else None
        return Run(answers[0], median(firsts), rate, (max(known) - min(known)) / rate if rate else 0.0)

    raced = [race(prompt) for prompt in work.prompts]
    return Ran(raced, torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None)


def timed_session(session: Session, work: Workload) -> Ran:
    """Time a session that has been judged. torch reads all of a prompt but its last id, as `generate` does."""
    position, ids = (session.layout.state[name] for name in ("position", "ids"))
    session.reset([0], position=0)

    def opened(prompt: tuple[int, ...]) -> Generate:
        last = len(prompt) - 1

        def generate(arrived: Arrived) -> list[int]:
            if last:
                session.cache.store(0, work.entries(prompt))
            session.resume(session.layout.initial_state(prompt, last, forced=len(prompt)))
            session.run()
            arrived(int(session.state()[position.offset]) - last)  # one for each position, more where drafts held
            session.run(work.tokens - 1)
            state = session.state()
            return state[ids.offset + len(prompt) : ids.offset + int(state[position.offset]) + 1].tolist()

        return generate

    return timed(opened, work)


def judged(session: Session, lab: Setup, shown: Collection[str] | None = None) -> str:
    """STAGES, if `session` agrees with the float64 reference in the few scenarios of a large model.

    Every tap, entry and word of the state is compared, with the tolerances and rules of the lab's own kernels; shown:
    only the taps of these stages, and the answer is LOGITS. Raises Mismatched with the first wrong element; Refused for
    weights that no fp32 kernel can be compared with.
    """
    seed, weights = lab.config.seed, lab.packed.flat
    drawn = scenarios(lab.model, seed, weights, quick=True, tokens=session.layout.tokens)
    verdict = validate(session, weights, drawn, seed, lab.expected, shown=shown)
    if verdict.mismatch:
        raise Mismatched(f"{verdict.mismatch}; seed {seed}", "correct that stage; only what passes is timed")
    return LOGITS if shown else STAGES


def _now(work: Workload) -> float:
    """Seconds, when the GPU has done all that it was given."""
    if work.device == "cuda" and torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
