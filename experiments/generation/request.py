"""Request of a generation, and its answer."""

from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

from common.config.resolve import check_ids
from common.errors import LabError
from common.model.shapes import Model

COLDEST, HOTTEST = 0.001, 1000  # temperatures; below, the exponents of two logits would be equal in fp32
LARGEST_PENALTY, LEAST_TOP_P = 100, 2**-64  # the kernel has top_p as a share of 2^64
SAMPLING_SEEDS = 2**63


@dataclass(frozen=True)
class Sampling:
    """Choice of the next token from the logits. temperature 0: the largest logit, after the penalty.

    top_k               only the k largest logits, and all that equal the last of them; 0: all
    top_p               only the most probable tokens that together reach this probability, after top_k
    repetition_penalty  divides the positive logits of ids that the prompt or the answer has, multiplies the negative
    seed                of the random numbers: the same seed and request, the same answer

    Raises LabError for a value of another type or out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        real, whole = (int, float), (int,)  # exact types: bool is refused
        for name, kinds, low, high in (
            ("temperature", real, COLDEST if self.temperature else 0, HOTTEST),
            ("top_p", real, LEAST_TOP_P, 1),
            ("repetition_penalty", real, 1 / LARGEST_PENALTY, LARGEST_PENALTY),
            ("top_k", whole, 0, 2**31 - 1),
            ("seed", whole, 0, SAMPLING_SEEDS - 1),
        ):
            value = getattr(self, name)
            if type(value) not in kinds or not low <= value <= high:
                kind, also = "whole number" if kinds == whole else "number", ", or 0 for the largest logit"
                remedy = f"give {name}=X{also if name == 'temperature' else ''}"
                raise LabError(f"{name}={short(value)} is not a {kind} in {low}..{high}", remedy)


@dataclass(frozen=True)
class Request:
    """A prompt, and where its answer ends: after max_tokens, with one of stop_ids, or before one of stop_strings."""

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()

    def check(self, model: Model, positions: int | None = None) -> None:
        """Raise LabError for another type, no ids, ids beyond the vocabulary, and more than the KV cache holds.

        positions: of the cache for prompt and answer; None: all. The last token is chosen but not decoded, so it needs
        no place.
        """
        positions = model.positions if positions is None else positions
        kinds: dict[str, Any] = dict.fromkeys(("ids", "stop_strings"), tuple | list)
        kinds |= {"max_tokens": int, "sampling": Sampling, "stop_ids": frozenset | set | tuple | list}
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise LabError(f"{name}={short(value)} is of another type", f"give {name} as Request declares it")
        if not all(isinstance(text, str) and text for text in self.stop_strings):
            raise LabError(f"stop_strings={short(self.stop_strings)} are no texts", "give texts that are not empty")
        if not self.ids or self.max_tokens < 1:
            raise LabError("the prompt or the answer has no token", "give both at least one")
        check_ids(self.ids, model, "prompt_ids")
        prompt, needed = len(self.ids), len(self.ids) + self.max_tokens - 1
        if needed > positions:
            drafts, room = model.positions - positions, positions - prompt + 1
            raise LabError(
                f"a prompt of {prompt} and max_tokens={self.max_tokens} need {needed} positions of {positions}"
                + (f", besides {drafts} for drafts" if drafts else ""),
                (f"lower max_tokens to at most {room}" if room > 0 else "shorten the prompt")
                + f", or give model.positions={needed + drafts} if the checkpoint allows it",
            )


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

    tokens_per_s: after the first token; 0 for an answer of one token. steps: of the kernel; fewer than tokens where
    drafts were accepted.
    """

    prompt_tokens: int
    kept_tokens: int
    tokens: int
    first_token_s: float
    seconds: float
    tokens_per_s: float
    steps: int = 0
