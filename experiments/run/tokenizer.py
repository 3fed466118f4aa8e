"""The tokenizer of a checkpoint, without transformers."""

from pathlib import Path
from typing import Any

from common.errors import LabError


def tokenizer_of(folder: Path | None, who: str, instead: str) -> Any:
    """The tokenizer.json of a checkpoint's folder, of the package `tokenizers`. who: needs it.

    Raises LabError where there is no such file, with the remedy `instead`, where it does not load, and where tokenizers
    is not installed.
    """
    file = folder and folder / "tokenizer.json"
    if not file or not file.exists():
        raise LabError(f"{who} needs a tokenizer, and these weights have none", instead)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise LabError(f"{who} needs tokenizers", f"pip install -e '.[hf]', or {instead}") from None
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers has no other type
        raise LabError(f"{file} does not load: {error}", instead) from None
