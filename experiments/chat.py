"""Talk to a checkpoint, decoded by one compiled stack: `python -m experiments.chat --help`."""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import split
from common.config.section import absolute
from common.errors import Crashed, Hung, LabError, unknown
from experiments.generation import options
from experiments.generation.request import Piece, Request
from experiments.tables.progress import progress

if TYPE_CHECKING:
    from experiments.generation.engine import Engine

CHAT_KEYS = ("system", "thinking", *options.GENERATION_KEYS)  # added to a run's keys; see conf/chat.yaml
COMMANDS = {
    "/variant NAME": "go on with another variant or named stack, over the same KV cache; knobs as ratio=2:6",
    "/stats": "what the last answer took, and how full the context is",
    "/reset": "begin anew",
    "/save FILE": "write the conversation as JSON, into a new file",
    "/help": "this list",
    "/quit": "leave, as Ctrl-D does",
}


@dataclass
class Conversation:
    """Messages, and how to answer them over the KV cache of an engine.

    request: settings of every answer, without a prompt. system: the first message, or None. thinking: see
    Engine.chat_ids. room: tokens that the KV cache had left for the last answer.
    """

    engine: "Engine"
    request: Request
    system: str | None
    thinking: bool
    room: int = 0

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, with the system's message alone."""
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    @property
    def size(self) -> int:
        """Tokens that the conversation takes of the KV cache before the next message."""
        return len(self.engine.chat_ids(self.messages, self.thinking)) if self.messages else 0

    def ask(self, text: str, cancelled: Callable[[], bool] = lambda: False) -> Iterator[Piece]:
        """The answer to a message, piece by piece; an answer cut off is remembered as far as it came.

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
            request = replace(self.request, ids=ids, max_tokens=min(self.request.max_tokens, self.room))
            for piece in self.engine.stream(request, cancelled):
                answered.append(piece.text)
                yield piece
        finally:
            if answered:
                self.messages.append({"role": "assistant", "content": "".join(answered)})
            else:
                self.messages.pop()


def chat(cfg: DictConfig) -> int:
    """Answer each line of stdin, until it ends."""
    own, rest = split(cfg, CHAT_KEYS)
    system = own.text("system", blank=True) if own.given("system") else None
    thinking, stop = own.flag("thinking"), own.flag("stop")
    config = options.resolve_one(rest, "a chat")
    request, draft = options.request_of(own, config.seed), options.read_draft(own.text("draft"))
    from experiments.generation.engine import Engine
    from experiments.generation.tokenizer import chat_text, load_tokenizer
    from experiments.run.setup import Setup

    with progress(3) as show:
        lab = Setup(config, show)
        lab.check(validates=False)
        tokenizer = load_tokenizer(lab.packed.folder, "give weights=DIR, a checkpoint with a tokenizer")
        chat_text(tokenizer, [{"role": "user", "content": "Hello"}], thinking)
        engine = Engine(lab, config.stacks[0], draft)
    with engine:
        request = replace(request, stop_ids=engine.stop_ids) if stop else request
        talk = Conversation(engine, request, system, thinking)
        note(f"{lab.model.name} by {engine.name}, {engine.positions} positions; /help lists the commands")
        for line in lines():
            try:
                if line == "/quit":
                    break
                if line.startswith("/"):
                    command(talk, *line.split())
                elif line:
                    answer(talk, line)
            except (Crashed, Hung):  # no kernel runs after it
                raise
            except LabError as error:
                note(f"error: {error}")
    return 0


def lines() -> Iterator[str]:
    """The lines of stdin, without blanks around them; on a terminal with a prompt, history and editing."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # the tokenizer refuses what is not UTF-8; the chat goes on
    prompt = "> " if sys.stdin.isatty() else ""
    if prompt:
        import readline  # noqa: F401  gives input() line editing
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            note("\nCtrl-D or /quit leaves the chat")
            continue
        yield line


def answer(talk: Conversation, text: str) -> None:
    """Print the answer to `text` as it comes. Ctrl-C ends it."""
    with interrupts() as interrupted:
        for piece in talk.ask(text, interrupted):
            print(piece.text, end="", flush=True)
    print(flush=True)
    stats = talk.engine.stats()
    if piece.finish == "length" and stats.tokens == talk.room:
        note("the context is full; /reset begins anew, and model.positions=N makes room for more")
    elif piece.finish == "length":
        note(f"max_tokens={talk.request.max_tokens} reached")
    note(options.speed(stats))


def command(talk: Conversation, name: str, *arguments: str) -> None:
    """Execute one of COMMANDS. Raises LabError for a mistake."""
    shapes = {text.partition(" ")[0]: text for text in COMMANDS}
    if name not in shapes:
        raise unknown("command", name, list(shapes))
    if bool(arguments) != (" " in shapes[name]) or (name == "/save" and len(arguments) > 1):
        raise LabError(f"{' '.join((name, *arguments))!r} is not {shapes[name]}", f"write {shapes[name]}")
    engine = talk.engine
    if name == "/variant":
        engine.use(arguments[0], knobs(arguments[1:]))
        note(f"{engine.name} answers now")
    elif name == "/stats":
        context = f"{talk.size} of {engine.positions} positions of the context"
        note(f"{engine.name}: {context}; {options.speed(engine.stats())}")
    elif name == "/reset":
        talk.reset()
        note("a new conversation")
    elif name == "/save":
        file = absolute(arguments[0])
        try:
            about = {"model": engine.model.name, "variant": engine.name, "messages": talk.messages}
            with file.open("x", encoding="utf-8") as out:
                out.write(json.dumps(about, ensure_ascii=False, indent=1) + "\n")
        except FileExistsError:
            raise LabError(f"{file} exists", "give another file, or remove that one") from None
        except OSError as error:
            raise LabError(f"{file} cannot be written: {error.strerror}", "give another file") from error
        note(f"saved to {file}")
    else:
        for text, about_it in COMMANDS.items():
            note(f"{text:16}{about_it}")


def knobs(texts: Sequence[str]) -> dict[str, Any]:
    """`ratio=2:6` as a knob and its value. Raises LabError for anything else."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise LabError(f"{text!r} is no knob", "write knob=value, such as ratio=2:6")
        values[name] = int(value) if value.lstrip("-").isdigit() else value
    return values


def note(text: str) -> None:
    """Print a line outside the answer: on stderr, faint on a terminal."""
    from rich.console import Console

    Console(stderr=True).print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Context that catches the first Ctrl-C; its function returns True after that."""
    came = list[int]()

    def remember(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)


main = partial(run_task, chat, "chat")

if __name__ == "__main__":
    raise SystemExit(main())
