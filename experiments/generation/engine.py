"""Engine of generation: one stack, one session, one KV cache, and the answers that it decodes."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from common.devices.protocol import Session
from common.errors import LabError
from common.model.layout import Layout
from common.stacks.stack import Stack
from experiments.generation.request import Piece, Request, Sampling, Stats
from experiments.generation.sampling import needed, source, write_settings
from experiments.generation.text import Answer
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.run.tokenizer import chat_text, encode, has_tokenizer, load_tokenizer, stop_ids
from experiments.run.torch_decoder import prefill

BURST = 0.03  # seconds of queued steps between two reads of their tokens: text flows, and reading costs little
NO_LOGITS = -1  # the sampler's token where there are none


class Engine:
    """Decodes requests one after another with one stack. The common prefix of a prompt and the KV cache is kept.

    stop_ids: end-of-sequence ids of the checkpoint. Close it after use. Raises LabError for weights that do not load,
    and for a stack that does not compile; `stream` and `use`, after `close`.
    """

    def __init__(self, setup: Setup, stack: Stack | LabStack) -> None:
        if not isinstance(stack := stack.stack if isinstance(stack, LabStack) else stack, Stack):
            raise LabError(f"{stack!r} is no stack", 'give lab.stack("vec128")')
        self.setup, self.model = setup, setup.model
        folder = setup.packed.folder
        self.tokenizer: Any | None = load_tokenizer(folder) if has_tokenizer(folder) else None
        self.stop_ids = stop_ids(folder)
        self._ids: list[int] = []  # ids by position; all but the last one have entries in the KV cache
        self._stats: Stats | None = None
        self.stack, self._layout = LabStack(setup, stack).compile(), Layout(self.model)
        self.session = self._open(self.stack.program, setup.config.blocks)
        self.session.reset([0], 0)
        self._requests, self._closed = 0, False

    @property
    def name(self) -> str:
        """Name of the stack."""
        return self.stack.name

    @property
    def positions(self) -> int:
        """Positions of the KV cache that prompt and answer may take: drafts behind the last token need some, too."""
        return self.model.positions - (self.tokens_per_step - 1)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step decodes if all its drafts are right."""
        return self.stack.source.tokens_per_step

    def use(self, named: str | Sequence[str], knobs: Mapping[str, Any] | None = None) -> None:
        """Decode with another stack from now on, over the same KV cache. named, knobs: as for `Setup.choose`.

        Raises LabError; the old stack then stays.
        """
        self._check_open()
        chosen = self.setup.choose(named, knobs or {})
        if chosen == self.stack.stack:
            return
        stack = LabStack(self.setup, chosen).compile()
        session = self._open(stack.program, self.setup.config.blocks, self.session)
        self._close_sessions()
        self.stack, self.session = stack, session
        self._requests += 1  # ends an answer under way: its scratch belongs to the old stack

    def stream(self, request: Request, cancelled: Callable[[], bool] = lambda: False) -> Iterator[Piece]:
        """The answer to `request`, piece by piece; the last one has a `finish`.

        cancelled: called between pieces. Raises LabError, at once, for a request that does not fit the model, and for
        stop strings without a tokenizer; later, if another answer has begun and taken the KV cache.
        """
        self._check_open()
        if not isinstance(request, Request):
            raise LabError(f"{request!r} is no request", "give Request(ids=(1, 2, 3), max_tokens=8)")
        request.check(self.model, self.positions)
        if request.stop_strings and not self.tokenizer:
            raise LabError("stop strings need a tokenizer, and these weights have none", "leave stop_strings out")
        return self._stream(request, cancelled)

    def stats(self) -> Stats:
        """Statistics of the last finished answer. Raises LabError before the first."""
        if self._stats is None:
            raise LabError("nothing has been generated yet", "generate an answer first")
        return self._stats

    def chat_ids(self, messages: Sequence[Mapping[str, str]], thinking: bool) -> tuple[int, ...]:
        """A conversation as a prompt, by the checkpoint's own chat template. Raises LabError if it has none.

        The ids depend on nothing else: in the KV cache the same text may stand in other ids.
        """
        tokenizer = self.tokenizer or load_tokenizer(self.setup.packed.folder)
        return encode(tokenizer, chat_text(tokenizer, messages, thinking), special=False)

    def close(self) -> None:
        """Free the buffers. Nothing is decoded any more."""
        if not self._closed:
            self._closed = True
            self._close_sessions()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LabError("the engine is closed", "open another one")

    def _close_sessions(self) -> None:
        for session in (self.session, vars(self).pop("_sampler", None)):
            if session:
                session.close()

    def _stream(self, request: Request, cancelled: Callable[[], bool]) -> Iterator[Piece]:
        self._check_open()
        start = time.perf_counter()
        prompt = request.ids
        kept = common_start(self._ids[:-1], prompt[:-1])
        self._read(prompt, kept, request.sampling)
        number = self._requests
        text, burst, tokens, first = Answer(self.tokenizer, request.stop_ids, request.stop_strings), 1, 0, 0.0
        finish: str | None = None
        all_steps = 0
        while not finish:
            self._check_open()
            if number != self._requests:
                raise LabError("another answer has begun", "take all pieces of one answer before the next one begins")
            began = time.perf_counter()
            left = request.max_tokens - tokens
            steps = max(1, min(burst, left // self.tokens_per_step))
            ids = self._decode(steps, request.sampling)[:left]
            now = time.perf_counter()
            burst, all_steps = max(1, int(BURST * steps / (now - began))), all_steps + steps
            first = first or now - start
            ids, shown = text.add(ids)
            tokens += len(ids)
            self._ids += ids
            if text.stopped:
                finish = "stop"
            elif tokens == request.max_tokens:
                finish = "length"
            elif cancelled():
                finish = "cancelled"
            if finish:
                shown += text.rest()
                seconds = time.perf_counter() - start
                rate = (tokens - 1) / (seconds - first) if tokens > 1 else 0.0
                self._stats = Stats(len(prompt), kept, tokens, first, seconds, rate, all_steps)
            yield Piece(tuple(ids), shown, finish)

    def _open(self, program: Any, blocks: int | None, beside: Session | None = None) -> Session:
        return self.setup.device.session(program, self.setup.packed.flat, blocks, beside)

    @cached_property
    def _sampler(self) -> Session:
        """The kernel that samples, over the same buffers."""
        return self._open(self.setup.device.compile(source(self.stack.source)), 1, self.session)

    @cached_property
    def _prompt_weights(self) -> Tensor:
        """Weights on the device that computes prompts."""
        return self.setup.packed.flat.to(self.setup.reference_device)

    def _read(self, prompt: Sequence[int], kept: int, sampling: Sampling) -> None:
        """Prefill the KV cache with the prompt, except its last id, which the first step decodes."""
        self._ids, last = list(prompt[:kept]), len(prompt) - 1
        if last > kept:
            cache = self.session.cache
            ids, history = prompt[kept:last], cache.entries(0, kept)
            cache.store(kept, prefill(self._layout, self._prompt_weights, ids, history))
        state = self._layout.initial_state(prompt, last, forced=len(prompt))
        self._requests += 1
        write_settings(state, self._layout, sampling, self._requests)
        self.session.resume(state)
        self._ids = list(prompt)

    def _decode(self, steps: int, sampling: Sampling) -> list[int]:
        """The ids of the next `steps` steps. Raises LabError if a stack keeps no logits to sample from."""
        self.session.run(steps, self._sampler if needed(sampling) else None)
        state, words = self.session.state(), self._layout.state
        at, last = words["ids"].offset, int(state[words["position"].offset])
        ids: list[int] = state[at + len(self._ids) : at + last + 1].tolist()
        if NO_LOGITS in ids:
            raise LabError(
                f"{self.name} keeps no logits to sample from",
                "give temperature=0 and repetition_penalty=1, or another variant",
            )
        return ids


def common_start(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
