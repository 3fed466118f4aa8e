"""The race that every arm runs: the same prompts, the same number of new tokens, the same clock."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor

from common.devices.protocol import Session
from experiments.engines.judged import IDS
from experiments.engines.transformers_model import causal_lm
from experiments.run.setup import Setup
from experiments.run.torch_decoder import prefill

WARM_UPS = 3  # runs before the first that counts: one compiles, one records a graph, one replays it
RUNS = 5


@dataclass(frozen=True)
class Answer:
    """New tokens as ids; or as `text`, with their `count`, from a server that returns no ids."""

    ids: Sequence[int] = ()
    text: str | None = None
    count: int = 0

    @property
    def tokens(self) -> int:
        return self.count if self.text is not None else len(self.ids)


@dataclass(frozen=True)
class Run:
    """The answer to one prompt. first: seconds until its first token, prompt included; whole: for all of it."""

    answer: Answer
    first: float
    whole: float

    @property
    def rate(self) -> float | None:
        """Tokens per second after the first one; None if there is no other."""
        return (self.answer.tokens - 1) / (self.whole - self.first) if self.answer.tokens > 1 else None


@dataclass(frozen=True)
class Ran:
    """One arm's runs, one for each prompt. validated: by what, see `experiments.engines.judged`.

    version: of an engine that runs elsewhere.
    """

    runs: Sequence[Run]
    peak_bytes: int | None = None
    validated: str = IDS
    version: str = ""


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
        """Type of activations: bf16 on a GPU; float32 on a CPU, where only what is chosen counts."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    @cached_property
    def weights(self) -> Tensor:
        """Flat bf16 weights where torch computes."""
        return self.lab.packed.flat.to(self.lab.reference_device)

    def transformers_model(self) -> Any:
        return causal_lm(self.lab.model, self.lab.layout, self.lab.packed.flat, self.dtype, self.device)

    def entries(self, prompt: Sequence[int]) -> Tensor:
        """Entries of all ids of a prompt but the last, as torch computes them for the lab's kernels."""
        m = self.lab.model
        none = torch.empty(m.layers, 2, m.kv_heads, 0, m.head_dim, dtype=torch.bfloat16)
        return prefill(m, self.lab.layout, self.weights, prompt[:-1], none)


Generate = Callable[[int], Answer]


def timed(opened: Callable[[tuple[int, ...]], Generate], work: Workload) -> Ran:
    """Time `opened(prompt)(n)`, which answers a prompt with n new tokens: for one, and for all; medians of some runs.

    What `opened` does for a prompt is not counted. Before that it warms up, first for all tokens, so that caches and
    graphs have their final sizes. On a CPU only the answer counts, and each runs once.
    """
    warm_ups, runs = (WARM_UPS, RUNS) if work.device == "cuda" else (0, 1)

    def race(prompt: tuple[int, ...]) -> Run:
        generate = opened(prompt)

        def seconds(tokens: int) -> tuple[Answer, float]:
            _sync(work)
            start = time.perf_counter()
            answer = generate(tokens)
            _sync(work)
            return answer, time.perf_counter() - start

        for tokens in (work.tokens, 1):
            for _ in range(warm_ups):
                seconds(tokens)
        whole, first = ([seconds(tokens) for _ in range(runs)] for tokens in (work.tokens, 1))
        return Run(whole[0][0], median(took for _, took in first), median(took for _, took in whole))

    raced = [race(prompt) for prompt in work.prompts]
    return Ran(raced, torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None)


def timed_session(session: Session, work: Workload) -> Ran:
    """Time a session that has been judged. torch reads all of a prompt but its last id, as `generate` does."""
    slot = session.layout.state["ids"]
    session.reset([0], position=0)

    def opened(prompt: tuple[int, ...]) -> Generate:
        last = len(prompt) - 1

        def generate(tokens: int) -> Answer:
            if last:
                session.cache.store(0, work.entries(prompt))
            session.resume(session.layout.initial_state(prompt, last, forced=len(prompt)))
            session.run(tokens)
            return Answer(session.state()[slot.offset + len(prompt) :][:tokens].tolist())

        return generate

    return timed(opened, work)


def _sync(work: Workload) -> None:
    if work.device == "cuda" and torch.cuda.is_available():
        torch.cuda.synchronize()
