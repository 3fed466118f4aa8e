"""Command lines of generation: the keys that conf/generation.yaml explains, and an answer's speed in words."""

import re
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

from omegaconf import DictConfig

from common.config.resolve import refuse_runs_keys, resolve
from common.config.run_config import RunConfig
from common.config.section import Section
from common.errors import LabError
from experiments.generation.request import Request, Sampling, Stats

NONE, NGRAM = "none", "ngram"  # values of `draft`
SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
GENERATION_KEYS = (*SAMPLING, "max_tokens", "stop", "stop_strings", "draft")


def resolve_one(cfg: DictConfig, what: str, validates: bool = False) -> RunConfig:
    """The configuration of `what`, such as "a generation", which runs one stack. Raises LabError for several.

    validates: the stack is validated first, so the keys of `validate` have an effect.
    """
    refuse_runs_keys(cfg, what, "timeout_s", *([] if validates else ["validate"]))
    config = resolve(cfg)
    if len(config.stacks) > 1:
        names = ", ".join(stack.name for stack in config.stacks)
        raise LabError(f"{what} runs one stack, not {len(config.stacks)}", f"choose one: variant={names}")
    return config


def request_of(own: Section, seed: int) -> Request:
    """The request of these keys, without prompt and stop ids. Raises LabError for a bad value."""
    sampling = Sampling(**{key: own.values[key] for key in SAMPLING}, seed=seed)
    return Request((), own.whole("max_tokens", low=1), sampling, stop_strings=own.texts("stop_strings"))


def read_draft(draft: Any) -> int | None:
    """Tokens of a step by `draft=none`, `draft=ngram` (0: as many as the variant's default) or `draft=ngram:K`.

    None: without drafts. What this function returns, it takes as well. Raises LabError for anything else.
    """
    if draft is None or (type(draft) is int and draft >= 0):  # True is an int, too
        return draft
    found = re.fullmatch(rf"{NGRAM}(?::([1-9]\d*))?", str(draft), re.ASCII)
    if not found and draft != NONE:
        given = draft if isinstance(draft, str) else short(draft)
        raise LabError(f"draft={given} is unknown", f"choose from {NONE}, {NGRAM} and {NGRAM}:K, K tokens a step")
    return int(found[1] or 0) if found else None


def speed(stats: Stats, read: Mapping[str, float] | None = None) -> str:
    """Tokens and times of an answer, in one line. read: on a GPU, `gb_per_s` and `of_ceiling`."""
    text = f"{stats.tokens} tokens"
    if stats.tokens_per_s:
        text += f", {stats.tokens_per_s:.1f} tokens/s ({1e3 / stats.tokens_per_s:.2f} ms a token)"
    text += f", the first after {stats.first_token_s:.3f} s"
    text += f"; prompt of {stats.prompt_tokens} tokens, {stats.kept_tokens} of them in the KV cache before"
    if stats.steps < stats.tokens:
        text += f"; {stats.tokens / stats.steps:.2f} tokens a step"
    if stats.tokens_per_s and read:
        text += f"; {read['gb_per_s']:.0f} GB/s, {100 * read['of_ceiling']:.0f} % of the read ceiling"
    return text
