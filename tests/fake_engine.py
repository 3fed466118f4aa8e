"""A decoder with a formula as engine. Some token ids in a prompt make it misbehave."""

import time
from dataclasses import dataclass, field
from types import SimpleNamespace

from common.errors import Crashed, Hung, LabError, OutOfMemory
from experiments.generation.request import Piece, Stats
from experiments.serving.decoder import Decoder

VOCAB, POSITIONS = 500, 256
SLOW, CRASH, HANG, MEMORY, BUG = 491, 492, 493, 494, 495  # 0.02 s a token; the others end the server
LOSSES = {
    CRASH: Crashed("a launch aborted", "see its report"),
    HANG: Hung("a launch did not finish", "see its report"),
    MEMORY: OutOfMemory("no memory is left", "take fewer positions"),
    BUG: ZeroDivisionError("a bug"),
}
ALPHABET = "abcdefghijklmnopqrstuvwxyz ,.éñ"


def following(ids, count, shift=0):
    """The `count` ids that the engine finds after `ids`; `shift` depends on the variant."""
    ids = list(ids)
    for _ in range(count):
        ids.append((31 * ids[-1] + 7 * len(ids) + sum(ids) + shift) % 490)
    return ids[len(ids) - count :]


def text_of(ids):
    return "".join(ALPHABET[one % len(ALPHABET)] for one in ids)


class Letters:
    """A tokenizer: one token for each character."""

    chat_template = "there is one"

    def encode(self, text, add_special_tokens=True):
        return [ord(one) % VOCAB for one in text]


@dataclass
class FakeEngine:
    model = SimpleNamespace(vocab=VOCAB)
    tokenizer: Letters | None = field(default_factory=Letters)
    positions: int = POSITIONS
    shift: int = 0
    stop_ids: frozenset[int] = frozenset()
    last: Stats | None = None
    cancelled: int = 0  # answers

    def stream(self, request, cancelled):
        ids = request.ids
        for loss in LOSSES.keys() & set(ids):
            raise LOSSES[loss]
        begin, done = time.perf_counter(), 0
        for token in following(ids, request.max_tokens, self.shift):
            if cancelled():
                self.cancelled += 1
                yield Piece((), "", "cancelled")
                break
            if SLOW in ids:
                time.sleep(0.02)
            done += 1
            yield Piece((token,), text_of([token]), "length" if done == request.max_tokens else None)
        self.last = Stats(len(ids), 0, done, 0.001, time.perf_counter() - begin, 1000.0)

    def stats(self):
        return self.last

    def chat_ids(self, messages, thinking):
        return tuple(self.tokenizer.encode("".join(one["content"] for one in messages)))

    def close(self):
        pass


class FakeDecoder(Decoder):
    """mute: without a tokenizer. about: in place of some of its own."""

    def __init__(self, mute=False, **about):
        self.engine = FakeEngine(None if mute else Letters())
        self.about = {
            "model": "fake",
            "device": "ptx",
            "positions": POSITIONS,
            "tokenizer": True,
            "chat": not mute,
        } | about

    def use(self, variant, knobs):
        if knobs and "l1" not in knobs:
            raise LabError(f"{variant} takes no knob {min(knobs)}", "leave it out")
        self.engine.shift = 0 if variant == "baseline" else 1
