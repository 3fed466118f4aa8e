"""Continue a prompt with one compiled stack: `python -m experiments.generate --help`."""

import json
import sys
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import split
from common.config.section import Section
from common.errors import LabError
from common.model.shapes import Model
from experiments.generation import options
from experiments.generation.request import Stats
from experiments.tables.progress import progress

PROMPT_KEYS = (
    "prompt",
    "prompt_ids",
    *options.GENERATION_KEYS,
)  # added to a run's keys; see conf/generate.yaml


def prompt(own: Section) -> tuple[str | None, tuple[int, ...]]:
    """The prompt as a text, or None and its ids. Raises LabError unless one of them is given."""
    text, ids = own.given("prompt"), own.given("prompt_ids")
    if text and ids:
        raise LabError("both prompt= and prompt_ids= are given", "leave one of them out")
    if not (text or ids):
        raise LabError("give a prompt, as text or as token ids", "prompt_ids=[1,2,3], or prompt='\"Once upon a time\"'")
    return (own.text("prompt", blank=True), ()) if text else (None, own.wholes("prompt_ids", low=0))


def generate(cfg: DictConfig) -> int:
    """Decode the prompt of `cfg`, print the text as it comes, and record it."""
    own, rest = split(cfg, PROMPT_KEYS)
    config = options.resolve_one(rest, "a generation")
    (text, ids), stop, draft = prompt(own), own.flag("stop"), options.read_draft(own.text("draft"))
    request = replace(options.request_of(own, config.seed), ids=ids)
    from experiments.generation.engine import Engine
    from experiments.generation.tokenizer import encode, load_tokenizer
    from experiments.run.setup import Setup

    with progress(3) as show:
        lab = Setup(config, show)
        lab.check(validates=False)
        if text is not None:
            request = replace(request, ids=encode(load_tokenizer(lab.packed.folder), text))
        if not request.ids:
            raise LabError(f"the tokenizer makes no token of {text!r}", "give a longer prompt")
        request.check(lab.model)
        engine = Engine(lab, config.stacks[0], draft)
    with engine:
        pieces = []
        for piece in engine.stream(replace(request, stop_ids=engine.stop_ids) if stop else request):
            pieces.append(piece)
            if text is not None and not config.json:
                print(piece.text, end="", flush=True)
        result: dict[str, Any] = {"prompt_ids": request.ids, "ids": [token for piece in pieces for token in piece.ids]}
        stats = engine.stats()
        read = {} if config.device.name != "cuda" else bandwidth(stats, lab.model)
        about = {"kind": "generate", "source_sha": engine.stack.source.sha, "blocks": engine.session.blocks}
        result |= {**asdict(stats), **read}
        record = engine.stack.append(about | {"sampling": asdict(request.sampling)} | result)
    if config.json:
        result |= {"variant": engine.name, "device": config.device.name, "model": lab.model.name, "record": record}
        if text is not None:
            result["text"] = "".join(piece.text for piece in pieces)
        print(json.dumps(result))
        return 0
    print(result["ids"] if text is None else "", flush=True)
    print(options.speed(stats, read), file=sys.stderr)
    return 0


def bandwidth(stats: Stats, model: Model) -> dict[str, float]:
    """Lower bound of the read rate after the first token, in GB/s, and its share of the GPU's read ceiling."""
    from experiments.timing.bandwidth import read_ceiling

    first, end = stats.prompt_tokens, stats.prompt_tokens + max(stats.tokens - 1, 1)
    mean = sum(model.bytes_per_token(position) for position in range(first, end)) / (end - first)
    rate = mean * stats.tokens_per_s
    return {"gb_per_s": rate / 1e9, "of_ceiling": rate / read_ceiling().best}


main = partial(run_task, generate, "generate")

if __name__ == "__main__":
    raise SystemExit(main())
