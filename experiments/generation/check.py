"""Check of a request before anything is decoded."""

from reprlib import repr as short

from common.config.resolve import check_ids
from common.errors import LabError
from common.model.shapes import Model
from experiments.generation.request import COLDEST, HOTTEST, LARGEST_PENALTY, SEEDS, Request, Sampling


def check_request(request: Request, model: Model) -> None:
    """Raise LabError for a part of another type, ids that are not in the vocabulary, and what the KV cache cannot hold.

    The last token is chosen but not decoded, so it needs no place.
    """
    if not isinstance(request, Request):
        raise LabError(f"{short(request)} is not a Request", "give Request(ids=(1, 2, 3), max_tokens=8)")
    for name, kinds, kind, example in (
        ("ids", tuple | list, int, "(1, 2, 3)"),
        ("stop_ids", frozenset | set | tuple | list, int, "frozenset({2})"),
        ("stop_strings", tuple | list, str, '("a",)'),  # and not one text, whose items are its letters
    ):
        items = getattr(request, name)
        wrong = [items]
        if isinstance(items, kinds):
            wrong = [one for one in items if not isinstance(one, kind) or type(one) is bool or one == ""]
        if wrong:
            raise LabError(f"{name}: {short(wrong[0])} does not belong there", f"give {name}={example}")
    check_sampling(request.sampling)
    if type(request.max_tokens) is not int or request.max_tokens < 1:
        cause = f"max_tokens={short(request.max_tokens)} is not a whole number of at least 1"
        raise LabError(cause, "give max_tokens=N")
    prompt, needed = len(request.ids), len(request.ids) + request.max_tokens - 1
    if not prompt:
        raise LabError("the prompt has no token", "give at least one")
    check_ids(request.ids, model, "prompt_ids")
    if needed > model.positions:
        raise LabError(
            f"a prompt of {prompt} and max_tokens={request.max_tokens} need {needed} positions of {model.positions}",
            f"lower max_tokens, or give model.positions={needed}",
        )


def check_sampling(sampling: Sampling) -> None:
    """Raise LabError for a value of another type, or one that means nothing."""
    if not isinstance(sampling, Sampling):
        raise LabError(f"sampling={short(sampling)} is not a Sampling", "give sampling=Sampling(temperature=0.7)")
    for name, low, high in (
        ("temperature", COLDEST, HOTTEST),
        ("top_p", 0.0, 1.0),
        ("repetition_penalty", 1 / LARGEST_PENALTY, LARGEST_PENALTY),
    ):
        value = getattr(sampling, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        zero = name == "temperature" and value == 0
        if not (number and (zero or low < value <= high or value == low > 0)):
            also = ", or 0 for the largest logit" if name == "temperature" else ""
            span = "above 0 and at most 1" if not low else f"in {low:g}..{high:g}"
            raise LabError(f"{name}={short(value)} is not a number {span}", f"give {name}=X{also}")
    for name, limit in (("top_k", 2**31), ("seed", SEEDS)):
        value = getattr(sampling, name)
        if type(value) is not int or not 0 <= value < limit:
            raise LabError(f"{name}={short(value)} is not a whole number in 0..{limit - 1}", f"give {name}=N")
