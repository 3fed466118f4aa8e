"""One line for a body that is not as the schema says: which field, by its place in the body, and why."""

import json
from collections.abc import Sequence
from typing import Any

LONGEST = 60  # characters of a name that is shown
CAUSES = {
    "extra_forbidden": "is not known to this server; leave it out",
    "missing": "is required",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
    "dict_type": "should be an object",
    "string_unicode": "has half of a surrogate pair",
}


def explain(errors: Sequence[Any], body: Any) -> tuple[str | None, str]:
    """The field, such as messages[3].content, and a sentence; None where the body itself is none.

    errors: of pydantic. Of a field that may have several types there is one for each: the innermost are taken.
    """
    places = [_place(error, body) for error in errors]
    inside = [place for place in places if place[: len(places[0])] == places[0]]
    place = max(inside, key=len)
    if not place and errors[0]["type"] == "string_unicode":  # a key, which has no place
        return None, f"a name {CAUSES['string_unicode']}"
    if not place:
        return None, "the body must be a JSON object, sent as application/json"
    causes = [_cause(error) for error, its in zip(errors, places, strict=True) if its == place]
    return _shown(place), f"{_shown(place)}: {', or '.join(dict.fromkeys(causes))}"


def _place(error: Any, body: Any) -> tuple[str | int, ...]:
    """Keys and indices that lead to the value; what else pydantic names is the type that was tried."""
    place, value, loc = list[str | int](), body, error["loc"][1:]
    for part in loc:
        if part in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
            value = value[part]
            place.append(part)
        elif part == loc[-1] and error["type"] == "missing":
            place.append(part)
    return tuple(place)


def _cause(error: Any) -> str:
    return CAUSES.get(error["type"]) or error["msg"].removeprefix("Input ")


def _shown(place: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{_name(part)}" for part in place).lstrip(".")


def _name(key: str) -> str:
    """A key as it is, or in quotes where it would not be told from the text around it."""
    return key if key.isidentifier() and len(key) <= LONGEST else json.dumps(key[:LONGEST])
