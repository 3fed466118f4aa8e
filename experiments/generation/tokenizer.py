"""Tokenizer, end-of-sequence ids and chat template of a checkpoint's folder. Code that it brings along is never run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import LabError
from common.model.hf_config import read_json

FILES = ("tokenizer.json", "vocab.json")


def stop_ids(folder: Path | None) -> frozenset[int]:
    """End-of-sequence ids that generation_config.json names, or else config.json; empty if neither does."""
    for file in (folder / "generation_config.json", folder / "config.json") if folder else ():
        found = read_json(file).get("eos_token_id") if file.exists() else None
        if found is not None:
            return frozenset(found if isinstance(found, list) else [found])
    return frozenset()


def has_tokenizer(folder: Path | None) -> bool:
    """Whether there are its files; without them transformers would make up an empty one."""
    return folder is not None and any((folder / name).is_file() for name in FILES)


def load_tokenizer(folder: Path | None, instead: str = "give prompt_ids=[1,2,3]") -> Any:
    """The checkpoint's own tokenizer. Raises LabError if there is none. instead: what to do then."""
    if folder is None:
        raise LabError("synthetic weights have no tokenizer", instead)
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise LabError("text needs transformers", f"pip install -e '.[hf]', or {instead}") from None
    if not has_tokenizer(folder):
        raise LabError(f"{folder} has no tokenizer", instead)
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise LabError(f"no tokenizer loads from {folder}: {first}", instead) from None


def chat_text(tokenizer: Any, messages: Sequence[Mapping[str, str]], thinking: bool) -> str:
    """`messages` by the checkpoint's own chat template, up to where the assistant's answer begins.

    Raises LabError for a checkpoint without a template, and for messages that its template refuses.
    """
    from jinja2 import TemplateError

    if not getattr(tokenizer, "chat_template", None):
        raise LabError(
            "the checkpoint's tokenizer has no chat template", "use experiments.generate, or a checkpoint made to chat"
        )
    try:
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
    except TemplateError as error:
        raise LabError(f"the chat template refuses the messages: {error}", "give them as it wants them") from None
