"""Continue a prompt with one compiled stack: `python -m experiments.generate --help`."""

import json
import sys
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import resolve_one, split
from common.config.section import Section
from common.errors import LabError
from experiments.generation.request import Request, Sampling, Stats
from experiments.tables.progress import progress

SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
# Added to a run's keys; see conf/generate.yaml.
KEYS = ("prompt", "prompt_ids", *SAMPLING, "max_tokens", "stop", "stop_strings")


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
    own, rest = split(cfg, KEYS)
    config = resolve_one(rest, "a generation")
    (text, ids), stop = prompt(own), own.flag("stop")
    sampling = Sampling(**{key: own.values[key] for key in SAMPLING}, seed=config.seed)
    request = Request(ids, own.whole("max_tokens", low=1), sampling, stop_strings=own.texts("stop_strings"))
    from experiments.generation.engine import Engine
    from experiments.run.setup import Setup
    from experiments.run.tokenizer import encode, load_tokenizer

    with progress(3) as show:
        lab = Setup(config, show)
        lab.check(validates=False)
        if text is not None:
            request = replace(request, ids=encode(load_tokenizer(lab.packed.folder), text))
        if not request.ids:
            raise LabError(f"the tokenizer makes no token of {text!r}", "give a longer prompt")
        request.check(lab.model)
        engine = Engine(lab, config.stacks[0])
    with engine, lab.exclusive_gpu():
        pieces = []
        for piece in engine.stream(replace(request, stop_ids=engine.stop_ids) if stop else request):
            pieces.append(piece)
            if text is not None and not config.json:
                print(piece.text, end="", flush=True)
        result: dict[str, Any] = {"prompt_ids": request.ids, "ids": [token for piece in pieces for token in piece.ids]}
        stats = engine.stats()
        about = {"kind": "generate", "source_sha": engine.stack.source.sha, "blocks": engine.session.blocks}
        result |= asdict(stats)
        record = engine.stack.append(about | {"sampling": asdict(sampling)} | result)
    if config.json:
        result |= {"variant": engine.name, "device": config.device.name, "model": lab.model.name, "record": record}
        if text is not None:
            result["text"] = "".join(piece.text for piece in pieces)
        print(json.dumps(result))
        return 0
    print(result["ids"] if text is None else "", flush=True)
    print(speed(stats), file=sys.stderr)
    return 0


def speed(stats: Stats) -> str:
    """Tokens and times of an answer, in one line."""
    text = f"{stats.tokens} tokens"
    if stats.tokens_per_s:
        text += f", {stats.tokens_per_s:.1f} tokens/s ({1e3 / stats.tokens_per_s:.2f} ms a token)"
    text += f", the first after {stats.first_token_s:.3f} s; prompt of {stats.prompt_tokens} tokens"
    return text + (f"; {stats.tokens / stats.steps:.2f} tokens a step" if stats.steps < stats.tokens else "")


main = partial(run_task, generate, "generate")

if __name__ == "__main__":
    raise SystemExit(main())
