"""Decode tokens greedily with one compiled stack: `python -m experiments.generate --help`."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import check_ids, refuse_runs_keys, resolve, split
from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.shapes import Model
from experiments.show.progress import progress

if TYPE_CHECKING:
    from common.devices.protocol import Session

TOKENIZERS = ("tokenizer.json", "vocab.json")
KEYS = ("prompt", "prompt_ids", "max_tokens", "stop")  # beside those of a run; conf/generate.yaml explains them


@dataclass(frozen=True)
class Request:
    """What to decode: `prompt` is text, else `ids`; one of them is None."""

    prompt: str | None
    ids: tuple[int, ...] | None
    max_tokens: int
    stop: bool


def request(cfg: DictConfig) -> tuple[RunConfig, Request]:
    """Split the configuration into the run and the request. Raises LabError for a bad value in either."""
    asked, rest = split(cfg, KEYS)
    if asked.given("prompt") == asked.given("prompt_ids"):
        raise LabError("give a prompt, as text or as token ids", "prompt_ids=[1,2,3], or prompt='\"Once upon a time\"'")
    wanted = Request(
        asked.text("prompt") if asked.given("prompt") else None,
        asked.wholes("prompt_ids", low=0) if asked.given("prompt_ids") else None,
        asked.whole("max_tokens", low=1),
        asked.flag("stop"),
    )
    config = resolve(rest)
    refuse_runs_keys(config, "a generation")
    if len(config.stacks) > 1:
        names = ", ".join(stack.name for stack in config.stacks)
        raise LabError(f"a generation runs one stack, not {len(config.stacks)}", f"choose one: variant={names}")
    return config, wanted


def check_room(prompt: int, max_tokens: int, model: Model) -> None:
    """Raise LabError unless a prompt of that many tokens and what follows it fit the KV cache of `model`.

    The last token is chosen but not decoded, so it needs no place.
    """
    needed = prompt + max_tokens - 1
    if needed > model.positions:
        raise LabError(
            f"a prompt of {prompt} and max_tokens={max_tokens} need {needed} positions of {model.positions}",
            f"lower max_tokens, or give model.positions={needed}",
        )


def generate(cfg: DictConfig) -> int:
    """Decode what `cfg` asks for, record it and print it."""
    config, wanted = request(cfg)
    from experiments.run.setup import Setup
    from experiments.run.steps import LabStack

    with progress(3) as show:
        lab = Setup(config, show)
        lab.check()
        tokenizer = None if wanted.prompt is None else load_tokenizer(lab.packed.folder)
        prompt = list(wanted.ids or () if tokenizer is None else tokenizer.encode(wanted.prompt))
        if not prompt:
            raise LabError(f"the tokenizer makes no token of {wanted.prompt!r}", "give a longer prompt")
        check_ids(prompt, lab.model, "prompt_ids")
        check_room(len(prompt), wanted.max_tokens, lab.model)
        stops = stop_ids(lab.packed.folder) if wanted.stop and lab.packed.folder else frozenset()
        stack = LabStack(lab, config.stacks[0]).compile()
        show.begin(f"decode with {stack.name}")
        with closing(stack.session()) as session:
            start = time.perf_counter()
            ids = decode(session, prompt, wanted.max_tokens, stops, config.device.name == "host", show.detail)
            seconds = time.perf_counter() - start
        decoded = {"kind": "generate", "prompt_ids": prompt, "ids": ids, "seconds": seconds}
        record = stack.append({"source_sha": stack.source.sha, "blocks": session.blocks} | decoded)
    found = {
        "ids": ids,
        "prompt_ids": prompt,
        "variant": stack.name,
        "device": config.device.name,
        "model": lab.model.name,
        "seconds": seconds,
        "record": record,
    }
    if tokenizer is not None:
        found["text"] = tokenizer.decode(ids)
    print(json.dumps(found) if config.json else found.get("text", ids))
    return 0


def decode(
    session: "Session",
    prompt: Sequence[int],
    max_tokens: int,
    stops: frozenset[int],
    step_by_step: bool,
    on_token: Callable[[str], None],
) -> list[int]:
    """The ids that follow `prompt`: at most `max_tokens`, and up to and including the first of `stops`.

    step_by_step: one launch at a time, each told to `on_token`, so that a slow device shows where it is and stops
    early; otherwise all steps are queued at once.
    """
    session.reset(prompt, position=0, forced=len(prompt))
    at = session.layout.state["ids"].offset
    steps = len(prompt) - 1 + max_tokens

    def new(done: int) -> list[int]:
        return session.state()[at + len(prompt) : at + done + 1].tolist()

    if step_by_step:
        for done in range(1, steps + 1):
            session.run()
            on_token(f"{done} of {steps} steps")
            if stops.intersection(new(done)[-1:]):
                return new(done)
        return new(steps)
    session.run(steps)
    ids = new(steps)
    end = next((count for count, token in enumerate(ids, 1) if token in stops), len(ids))
    return ids[:end]


def stop_ids(folder: Path) -> frozenset[int]:
    """End-of-sequence ids that generation_config.json names, or else config.json; empty if neither does."""
    from common.model.hf_config import read_json

    for file in (folder / "generation_config.json", folder / "config.json"):
        found = read_json(file).get("eos_token_id") if file.exists() else None
        if found is not None:
            return frozenset(found if isinstance(found, list) else [found])
    return frozenset()


def load_tokenizer(folder: Path | None) -> Any:
    """The checkpoint's own tokenizer; code that it brings along is never run. Raises LabError if there is none."""
    if folder is None:
        raise LabError("synthetic weights have no tokenizer", "give prompt_ids=[1,2,3]")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise LabError("text needs transformers", "pip install -e '.[hf]', or give prompt_ids=[1,2,3]") from None
    if not any((folder / name).is_file() for name in TOKENIZERS):  # transformers would make up an empty one
        raise LabError(f"{folder} has no tokenizer", "give prompt_ids=[1,2,3]")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise LabError(f"no tokenizer loads from {folder}: {first}", "give prompt_ids=[1,2,3]") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(generate, "generate", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())
