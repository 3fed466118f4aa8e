"""Log of what a user should know although nothing has to be done; without a handler, a warning is a line on stderr."""

import logging
from functools import cache

LOG = logging.getLogger("megakernel-lab")


@cache
def note_once(text: str) -> None:
    """Log `text`, in this process for the first and last time."""
    LOG.warning("note: %s", text)
