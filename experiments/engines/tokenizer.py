"""The tokenizer of a checkpoint, without transformers."""

from typing import Any

from common.errors import LabError
from experiments.run.setup import Setup


def tokenizer_of(lab: Setup, who: str, remedy: str) -> Any:
    """The tokenizer of the weights, of the package `tokenizers`.

    who: needs it, and remedy: what to do without one, for the LabError where the weights have none.
    """
    folder = lab.packed.folder
    if folder is None or not (folder / "tokenizer.json").exists():
        raise LabError(f"{who} needs a tokenizer, and these weights have none", remedy)
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))
