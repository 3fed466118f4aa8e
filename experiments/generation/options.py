"""Keys of a generation on the command line; conf/generation.yaml explains them."""

from common.config.run_config import RunConfig
from common.config.section import Section
from common.errors import LabError
from experiments.generation.check import check_sampling
from experiments.generation.request import Sampling

KEYS = ("temperature", "top_k", "top_p", "repetition_penalty", "max_tokens", "stop", "stop_strings")


def sampling_of(asked: Section, seed: int) -> Sampling:
    """Raises LabError for a bad value."""
    sampling = Sampling(
        asked.number("temperature", zero=True),
        asked.whole("top_k", low=0),
        asked.number("top_p"),
        asked.number("repetition_penalty"),
        seed,
    )
    check_sampling(sampling)
    return sampling


def check_one_stack(config: RunConfig, what: str) -> None:
    """Raise LabError for several stacks, of which `what`, such as "a generation", runs one."""
    if len(config.stacks) > 1:
        names = ", ".join(stack.name for stack in config.stacks)
        raise LabError(f"{what} runs one stack, not {len(config.stacks)}", f"choose one: variant={names}")
