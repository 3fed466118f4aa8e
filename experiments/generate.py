"""Continue a prompt with one compiled stack: `python -m experiments.generate --help`."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import refuse_runs_keys, resolve, split
from common.config.run_config import RunConfig
from common.errors import LabError
from experiments.generation import options
from experiments.generation.check import check_request
from experiments.generation.request import Request, Sampling
from experiments.tables.progress import progress

KEYS = ("prompt", "prompt_ids", *options.KEYS)  # beside those of a run; conf/generate.yaml explains them


@dataclass(frozen=True)
class Wanted:
    """Input to decode: `prompt` is text, else `ids`; one of them is None."""

    prompt: str | None
    ids: tuple[int, ...] | None
    max_tokens: int
    stop: bool
    stop_strings: tuple[str, ...]
    sampling: Sampling


def request(cfg: DictConfig) -> tuple[RunConfig, Wanted]:
    """Split the configuration into the run and the request. Raises LabError for a bad value in either."""
    asked, rest = split(cfg, KEYS)
    config = resolve(rest)
    refuse_runs_keys(config, "a generation")
    text, ids = asked.given("prompt"), asked.given("prompt_ids")
    if text and ids:
        raise LabError("both prompt= and prompt_ids= are given", "leave one of them out")
    if not (text or ids):
        raise LabError("give a prompt, as text or as token ids", "prompt_ids=[1,2,3], or prompt='\"Once upon a time\"'")
    options.check_one_stack(config, "a generation")
    return config, Wanted(
        asked.text("prompt", blank=True) if text else None,
        asked.wholes("prompt_ids", low=0) if ids else None,
        asked.whole("max_tokens", low=1),
        asked.flag("stop"),
        asked.texts("stop_strings"),
        options.sampling_of(asked, config.seed),
    )


def generate(cfg: DictConfig) -> int:
    """Decode what `cfg` asks for, print the text as it comes, and record it."""
    config, wanted = request(cfg)
    from experiments.generation.engine import Engine
    from experiments.generation.speed import bandwidth, line
    from experiments.generation.tokenizer import encode, load_tokenizer
    from experiments.run.setup import Setup
    from experiments.timing.bandwidth import read_ceiling

    with progress(3) as show:
        lab = Setup(config, show)
        lab.check()
        tokenizer = None if wanted.prompt is None else load_tokenizer(lab.packed.folder)
        prompt = wanted.ids or () if wanted.prompt is None else encode(tokenizer, wanted.prompt)
        if not prompt:
            raise LabError(f"the tokenizer makes no token of {wanted.prompt!r}", "give a longer prompt")
        asked = Request(prompt, wanted.max_tokens, wanted.sampling, stop_strings=wanted.stop_strings)
        check_request(asked, lab.model)
        engine = Engine(lab, config.stacks[0])
    with closing(engine):
        asked = replace(asked, stop_ids=engine.stop_ids if wanted.stop else frozenset())
        ids, text = list[int](), ""
        for piece in engine.stream(asked):
            ids += piece.ids
            text += piece.text
            if tokenizer is not None and not config.json:
                print(piece.text, end="", flush=True)
        stats = engine.stats()
        read = None if config.host else bandwidth(stats, lab.model, read_ceiling())
        found = {"prompt_ids": prompt, "ids": ids, **asdict(stats), **(read or {})}
        about = {"kind": "generate", "source_sha": engine.stack.source.sha, "blocks": engine.session.blocks}
        record = engine.stack.append(about | {"sampling": asdict(wanted.sampling)} | found)
    if config.json:
        found |= {"variant": engine.name, "device": config.device.name, "model": lab.model.name, "record": record}
        if tokenizer is not None:
            found["text"] = text
        print(json.dumps(found))
        return 0
    print(ids if tokenizer is None else "", flush=True)
    print(line(stats, read), file=sys.stderr)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(generate, "generate", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())
