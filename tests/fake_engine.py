"""A worker with a formula as engine: starts in a tenth of a second. Some token ids in a prompt make it misbehave."""

import os
import time
from dataclasses import dataclass, field

from common.errors import Hung, LabError
from experiments.generation.request import Piece, Stats
from experiments.serving.jobs import serve_jobs

VOCAB, POSITIONS = 500, 256
SLOW, CRASH, HANG, DEAF, BUG = 491, 492, 493, 494, 495  # 0.02 s a token; ends; is Hung; never looks at a cancel; raises
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

    def encode(self, text):
        return [ord(one) % VOCAB for one in text]


@dataclass
class FakeEngine:
    tokenizer: Letters | None = field(default_factory=Letters)
    positions: int = POSITIONS
    shift: int = 0
    stop_ids: frozenset[int] = frozenset()
    last: Stats | None = None

    def stream(self, request, cancelled):
        ids = request.ids
        if CRASH in ids:
            os._exit(7)
        if HANG in ids:
            raise Hung("a launch did not finish", "see its report", "")
        if BUG in ids:
            raise ZeroDivisionError("a bug")
        begin, done = time.perf_counter(), 0
        for token in following(ids, request.max_tokens, self.shift):
            if cancelled() and DEAF not in ids:
                yield Piece((), "", "cancelled")
                break
            if SLOW in ids or DEAF in ids:
                time.sleep(0.02)
            done += 1
            yield Piece((token,), text_of([token]), "length" if done == request.max_tokens else None)
        self.last = Stats(len(ids), 0, done, 0.001, time.perf_counter() - begin, 1000.0)

    def stats(self):
        return self.last

    def chat_ids(self, messages, thinking):
        return tuple(self.tokenizer.encode("".join(one["content"] for one in messages)))


class FakeWorker:
    def __init__(self, first):
        if "refuse" in first:
            raise LabError("no such weights", "give others")
        self.about = {"model": "fake", "device": "ptx", "positions": POSITIONS, "tokenizer": True, "chat": True}
        self.about |= {
            "vocab": VOCAB,
            "step_bytes": 1000,
            "position_bytes": 10,
            "ceiling": None,
            "why": "not known of a formula",
        }
        self.about |= first.get("about", {})
        self.engine = FakeEngine(None if "mute" in first else Letters())

    def use(self, variant, knobs):
        if knobs and "l1" not in knobs:
            raise LabError(f"{variant} takes no knob {min(knobs)}", "leave it out")
        self.engine.shift = 0 if variant == "baseline" else 1

    def trace(self, variant, knobs, position):
        timed = self.about["ceiling"] is not None
        work, wait = ([1000, 400, None], [0, 600, None]) if timed else ([0, 0, None], [0, 0, None])
        stages = [{"stage": name, "work": work, "wait": wait} for name in ("embed", "qkv", "attention")]
        about = {"title": f"{variant}, fake, position {position}", "unit": "ns" if timed else "ordinal", "blocks": 3}
        return about | {"stages": stages, "reading": "These are times." if timed else "These are not times."}


if __name__ == "__main__":
    serve_jobs(FakeWorker)
