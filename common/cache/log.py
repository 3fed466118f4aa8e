"""Log of notes that need no action of the user; without a handler, a warning is a line on stderr."""

import logging
from functools import cache

LOG = logging.getLogger("megakernel-lab")


@cache
def note_once(text: str) -> None:
    """Log `text` at most once in this process."""
    LOG.warning("note: %s", text)
