"""Conversation over the KV cache of an engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from common.errors import LabError
from experiments.generation.engine import Engine, never
from experiments.generation.request import Piece, Request, Sampling


@dataclass
class Conversation:
    """Messages and how to answer them. system: the first message, or None; thinking: see Engine.chat_ids.

    room: tokens that the last answer could have had before the KV cache was full.
    """

    engine: Engine
    sampling: Sampling
    max_tokens: int
    thinking: bool
    system: str | None = None
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    messages: list[dict[str, str]] = field(default_factory=list)
    room: int = 0

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, with the system's message alone."""
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    @property
    def size(self) -> int:
        """Tokens that the messages so far take of the KV cache when the next one comes."""
        return len(self.engine.chat_ids(self.messages, self.thinking)) if self.messages else 0

    def ask(self, text: str, cancelled: Callable[[], bool] = never) -> Iterator[Piece]:
        """The answer to a message, piece by piece; what has been answered is remembered, however it ends.

        Raises LabError, and forgets the message, if the KV cache has no room for an answer.
        """
        self.messages.append({"role": "user", "content": text})
        answered = list[str]()
        try:
            ids = self.engine.chat_ids(self.messages, self.thinking)
            self.room = self.engine.positions - len(ids) + 1
            if self.room < 1:
                raise LabError(
                    f"the context is full: the conversation has {len(ids)} tokens, the KV cache "
                    f"{self.engine.positions} positions",
                    "/reset begins anew, and model.positions=N makes room for more",
                )
            most = min(self.max_tokens, self.room)
            request = Request(ids, most, self.sampling, self.stop_ids, self.stop_strings)
            for piece in self.engine.stream(request, cancelled):
                answered.append(piece.text)
                yield piece
        finally:
            if answered:
                self.messages.append({"role": "assistant", "content": "".join(answered)})
            else:
                self.messages.pop()
