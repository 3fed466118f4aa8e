"""Request of a generation, and its answer."""

from dataclasses import dataclass
from reprlib import repr as short

from common.config.resolve import check_ids
from common.errors import LabError
from common.model.shapes import Model

COLDEST, HOTTEST = 1e-3, 1e3  # temperatures; below, the exponents of two logits would be equal in fp32
LARGEST_PENALTY = 100.0
SAMPLING_SEEDS = 2**63


@dataclass(frozen=True)
class Sampling:
    """Choice of the next token from the logits. temperature 0: the largest logit, and nothing else counts.

    top_k               only the k largest logits, and all that equal the last of them; 0: all
    top_p               only the most probable tokens that together reach this probability, after top_k
    repetition_penalty  divides the positive logits of ids that the prompt or the answer has, multiplies the negative
    seed                of the random numbers: the same seed and request, the same answer

    Raises LabError for a value of another type, or one that means nothing.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", COLDEST, HOTTEST),
            ("top_p", 0.0, 1.0),
            ("repetition_penalty", 1 / LARGEST_PENALTY, LARGEST_PENALTY),
        ):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            zero = name == "temperature" and value == 0
            if not (number and (zero or low < value <= high or value == low > 0)):
                also = ", or 0 for the largest logit" if name == "temperature" else ""
                span = "above 0 and at most 1" if not low else f"in {low:g}..{high:g}"
                raise LabError(f"{name}={short(value)} is not a number {span}", f"give {name}=X{also}")
        for name, limit in (("top_k", 2**31), ("seed", SAMPLING_SEEDS)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < limit:
                raise LabError(f"{name}={short(value)} is not a whole number in 0..{limit - 1}", f"give {name}=N")


@dataclass(frozen=True)
class Request:
    """A prompt, and where its answer ends: after max_tokens, with one of stop_ids, or before one of stop_strings.

    Raises LabError for a part of another type.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kinds, kind, example in (
            ("ids", tuple | list, int, "(1, 2, 3)"),
            ("stop_ids", frozenset | set | tuple | list, int, "frozenset({2})"),
            ("stop_strings", tuple | list, str, '("a",)'),  # not a single text: its items are letters
        ):
            items = getattr(self, name)
            wrong = [items]
            if isinstance(items, kinds):
                wrong = [one for one in items if not isinstance(one, kind) or type(one) is bool or one == ""]
            if wrong:
                raise LabError(f"{name}: {short(wrong[0])} does not belong there", f"give {name}={example}")
        if not isinstance(self.sampling, Sampling):
            raise LabError(f"sampling={short(self.sampling)} is not a Sampling", "give Sampling(temperature=0.7)")
        if type(self.max_tokens) is not int or self.max_tokens < 1:
            cause = f"max_tokens={short(self.max_tokens)} is not a whole number of at least 1"
            raise LabError(cause, "give max_tokens=N")

    def check(self, model: Model, positions: int | None = None) -> None:
        """Raise LabError for ids that are not in the vocabulary, and for more than the KV cache holds.

        positions: of the cache for prompt and answer; None: all. The last token is chosen but not decoded, so it needs
        no place.
        """
        positions = model.positions if positions is None else positions
        if not self.ids:
            raise LabError("the prompt has no token", "give at least one")
        check_ids(self.ids, model, "prompt_ids")
        prompt, needed = len(self.ids), len(self.ids) + self.max_tokens - 1
        if needed > positions:
            drafts, room = model.positions - positions, positions - prompt + 1
            shorter = f"lower max_tokens to at most {room}" if room > 0 else "shorten the prompt"
            raise LabError(
                f"a prompt of {prompt} and max_tokens={self.max_tokens} need {needed} positions of {positions}"
                + (f", besides {drafts} for drafts" if drafts else ""),
                f"{shorter}, or give model.positions={needed + drafts} if the checkpoint allows it",
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
