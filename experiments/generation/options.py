"""Keys that the commands of generation share: one stack, and its drafts."""

import re
from reprlib import repr as short
from typing import Any

from omegaconf import DictConfig

from common.config.resolve import refuse_runs_keys
from common.config.run_config import RunConfig
from common.errors import LabError
from experiments.run.choice import run_config


def resolve_one(cfg: DictConfig, what: str, validates: bool = False) -> RunConfig:
    """The configuration of `what`, such as "a generation", which runs one stack. Raises LabError for several.

    validates: the stack is validated first, so the keys of `validate` have an effect.
    """
    refuse_runs_keys(cfg, what, "timeout_s", *([] if validates else ["validate"]))
    config = run_config(cfg)
    if len(config.stacks) > 1:
        names = ", ".join(stack.name for stack in config.stacks)
        raise LabError(f"{what} runs one stack, not {len(config.stacks)}", f"choose one: variant={names}")
    return config


def read_draft(draft: Any) -> int | None:
    """Tokens of a step by `draft=none`, `draft=ngram` (0: as many as the variant's default) or `draft=ngram:K`.

    None: without drafts. What this function returns, it takes as well. Raises LabError for anything else.
    """
    if draft is None or (type(draft) is int and draft >= 0):  # True is an int, too
        return draft
    found = re.fullmatch(r"none|ngram(?::([1-9]\d*))?", str(draft), re.ASCII)
    if not found:
        given = draft if isinstance(draft, str) else short(draft)
        raise LabError(f"draft={given} is unknown", "choose from none, ngram and ngram:K, K tokens a step")
    return None if draft == "none" else int(found[1] or 0)
