"""Text of an answer as its tokens come: whole characters only, and nothing of a stop string."""

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"  # a tokenizer's text for an incomplete character


class Answer:
    """The ids of an answer up to its end, and their text. `stopped` once a stop id or a stop string has ended it.

    tokenizer: None makes no text, as for synthetic weights. stop_strings: none of them empty.
    """

    def __init__(self, tokenizer: Any, stop_ids: frozenset[int], stop_strings: Sequence[str]) -> None:
        self._tokenizer, self._stop_ids, self._stop_strings = tokenizer, stop_ids, stop_strings
        self._ids: list[int] = []
        # A token's text can depend on the one before it, so the ids of the last complete text are decoded again.
        self._first = self._shown = 0
        self._held = ""  # text that may begin a stop string
        self._cut = False  # true after a stop string
        self.stopped = False

    def add(self, ids: Sequence[int]) -> tuple[list[int], str]:
        """The part of `ids` that belongs to the answer, and the text that it completes. A stop id belongs to it."""
        own, text = list[int](), ""
        for token in ids:
            own.append(token)
            if self._tokenizer:
                self._ids.append(token)
                decoded = self._decoded(len(self._ids))
                text += "" if decoded.endswith(UNFINISHED) else self._before_stop(self._new(decoded))
            if token in self._stop_ids or self._cut:
                self.stopped = True
                break
        return own, text

    def rest(self) -> str:
        """The text held back, also an incomplete character; no more ids follow."""
        if not self._tokenizer:
            return ""
        return self._before_stop(self._new(self._decoded(len(self._ids)))) + self._held

    def _decoded(self, end: int) -> str:
        ids = self._ids[self._first : end]
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _new(self, decoded: str) -> str:
        """The part of `decoded`, all ids so far, that has not been given yet."""
        new = decoded[len(self._decoded(self._shown)) :]
        if new:  # the ids before have text of their own: what follows is decoded as in the middle of an answer
            self._first = self._shown
        self._shown = len(self._ids)
        return new

    def _before_stop(self, text: str) -> str:
        """The text that may be shown now; all that may begin a stop string is held back."""
        if self._cut:
            return ""
        text = self._held + text
        places = [at for string in self._stop_strings if (at := text.find(string)) >= 0]
        if places:
            self._cut, self._held = True, ""
            return text[: min(places)]
        shown = len(text) - max((_overlap(text, string) for string in self._stop_strings), default=0)
        self._held = text[shown:]
        return text[:shown]


def _overlap(text: str, string: str) -> int:
    """Characters at the end of `text` with which `string` begins."""
    longest = min(len(text), len(string) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(string[:size])), 0)
