"""Text of an answer as its tokens come: whole characters only, and nothing of a stop string."""

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"  # what a tokenizer makes of the first bytes of a character


class Detokenizer:
    """Text of ids that come one after another. No character is given before all its bytes are there."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # A token's text can depend on the one before it, so the ids of the last complete text are decoded again.
        self._first = self._shown = 0

    def add(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete."""
        self._ids += ids
        text = self._text(len(self._ids))
        return "" if text.endswith(UNFINISHED) else self._give(text)

    def rest(self) -> str:
        """The text of the bytes of a character that no token has completed."""
        return self._give(self._text(len(self._ids)))

    def _give(self, text: str) -> str:
        new = text[len(self._text(self._shown)) :]
        if new:  # the ids before have text of their own: what follows is decoded as in the middle of an answer
            self._first = self._shown
        self._shown = len(self._ids)
        return new

    def _text(self, end: int) -> str:
        return self._tokenizer.decode(
            self._ids[self._first : end], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


class StopStrings:
    """Text up to the first of some strings, none of them empty. A possible begin of one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """Text that may be shown now; nothing after a stop string is."""
        if self.found:
            return ""
        text = self._held + text
        places = [at for string in self._strings if (at := text.find(string)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        held = max((self._beginning(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> str:
        """The text that was held back; no more follows."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _beginning(text: str, string: str) -> int:
        """Characters at the end of `text` with which `string` begins."""
        longest = min(len(text), len(string) - 1)
        return next((size for size in range(longest, 0, -1) if text.endswith(string[:size])), 0)


class Answer:
    """The ids of an answer up to its end, and their text. `stopped` once a stop id or a stop string has ended it.

    tokenizer: None makes no text, as for synthetic weights.
    """

    def __init__(self, tokenizer: Any | None, stop_ids: frozenset[int], stop_strings: Sequence[str]) -> None:
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
        self._stop_ids, self._strings = stop_ids, StopStrings(stop_strings)
        self.stopped = False

    def add(self, ids: Sequence[int]) -> tuple[list[int], str]:
        """The part of `ids` that belongs to the answer, and the text that it completes. A stop id belongs to it."""
        own, text = list[int](), ""
        for token in ids:
            own.append(token)
            if self._detokenizer:
                text += self._strings.add(self._detokenizer.add([token]))
            if token in self._stop_ids or self._strings.found:
                self.stopped = True
                break
        return own, text

    def rest(self) -> str:
        """The text that was held back; no more ids follow."""
        if not self._detokenizer or self._strings.found:
            return ""
        return self._strings.add(self._detokenizer.rest()) + self._strings.rest()
