"""Request of a generation, and its answer."""

from dataclasses import dataclass

COLDEST, HOTTEST = 1e-3, 1e3  # temperatures; below, the exponents of two logits would be equal in fp32
LARGEST_PENALTY = 100.0
SEEDS = 2**63


@dataclass(frozen=True)
class Sampling:
    """Choice of the next token from the logits. temperature 0: the largest logit, and nothing else counts.

    top_k               only the k largest logits, and all that equal the last of them; 0: all
    top_p               only the most probable tokens that together reach this probability, after top_k
    repetition_penalty  divides the positive logits of ids that the prompt or the answer has, multiplies the negative
    seed                of the random numbers: the same seed and request, the same answer
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """A prompt, and where its answer ends: after max_tokens, with one of stop_ids, or before one of stop_strings."""

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Piece:
    """The next ids and the text that they complete, "" without a tokenizer.

    finish: None while more follows; "stop", "length" or "cancelled" in the last piece, which may have no ids.
    """

    ids: tuple[int, ...]
    text: str
    finish: str | None


@dataclass(frozen=True)
class Stats:
    """Statistics of one answer. kept_tokens: tokens of the prompt that were in the KV cache. Times in seconds.

    tokens_per_s: after the first token; 0 for an answer of one token.
    """

    prompt_tokens: int
    kept_tokens: int
    tokens: int
    first_token_s: float
    seconds: float
    tokens_per_s: float
