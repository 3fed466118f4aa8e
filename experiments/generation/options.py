"""Configuration of a command that runs one stack."""

from omegaconf import DictConfig

from common.config.resolve import refuse_runs_keys, resolve
from common.config.run_config import RunConfig
from common.errors import LabError


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
