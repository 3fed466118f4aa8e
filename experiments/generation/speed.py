"""Speed of an answer, in words and figures."""

from common.model.shapes import Model
from experiments.generation.request import Stats
from experiments.timing.bandwidth import Ceiling


def bandwidth(stats: Stats, model: Model, ceiling: Ceiling) -> dict[str, float]:
    """Read rate of the steps after the first token, at least, in GB/s, and its share of the read ceiling."""
    first, end = stats.prompt_tokens, stats.prompt_tokens + max(stats.tokens - 1, 1)
    mean = sum(model.bytes_per_token(position) for position in range(first, end)) / (end - first)
    return {"gb_per_s": mean * stats.tokens_per_s / 1e9, "of_ceiling": mean * stats.tokens_per_s / ceiling.best}


def line(stats: Stats, read: dict[str, float] | None = None) -> str:
    """Speed of an answer, in one line. read: its `bandwidth`, on a GPU."""
    text = f"{stats.tokens} tokens"
    if stats.tokens_per_s:
        text += f", {stats.tokens_per_s:.1f} tokens/s ({1e3 / stats.tokens_per_s:.2f} ms a token)"
    text += f", the first after {stats.first_token_s:.3f} s; prompt {stats.prompt_tokens}, {stats.kept_tokens} kept"
    if read and stats.tokens_per_s:
        text += f"; {read['gb_per_s']:.0f} GB/s, {100 * read['of_ceiling']:.0f} % of the read ceiling"
    return text
