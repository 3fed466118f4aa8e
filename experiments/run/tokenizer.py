"""Tokenizer, end-of-sequence ids and chat template of a checkpoint's folder. Code that it brings along is never run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from common.errors import LabError
from common.model.checkpoint import CONFIG
from common.model.families import FAMILIES
from common.model.hf_config import read_json

FILES = ("tokenizer.json", "vocab.json")
PROMPT_IDS = "give prompt_ids=[1,2,3]"


def stop_ids(folder: Path | None) -> frozenset[int]:
    """End-of-sequence ids that generation_config.json names, or else config.json; empty if neither names one.

    Raises LabError for a file that cannot be read, and for a value that is no id.
    """
    for file in (folder / "generation_config.json", folder / CONFIG) if folder else ():
        found = read_json(file).get("eos_token_id") if file.exists() else None
        listed = found if isinstance(found, list) else [] if found is None else [found]
        for one in listed:
            if type(one) is not int or one < 0:
                raise LabError(f"{file}: eos_token_id: {short(one)} is not an id", "give an id, or a list of ids")
        if listed:
            return frozenset(listed)
    return frozenset()


def has_tokenizer(folder: Path | None) -> bool:
    """True if the tokenizer's files are there; without them transformers would make up an empty one."""
    return folder is not None and any((folder / name).is_file() for name in FILES)


def load_tokenizer(folder: Path | None, instead: str = PROMPT_IDS) -> Any:
    """The checkpoint's own tokenizer. Raises LabError, with the remedy `instead`, if there is none."""
    if folder is None:
        raise LabError("synthetic weights have no tokenizer", instead)
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError:
        raise LabError("text needs transformers", f"pip install -e '.[hf]', or {instead}") from None
    if not has_tokenizer(folder):
        raise LabError(f"{folder} has no tokenizer", instead)
    kind = read_json(folder / CONFIG).get("model_type") if (folder / CONFIG).exists() else None
    try:  # the lab has checked config.json itself, and takes numbers of types that transformers refuses
        config = AutoConfig.for_model(kind if kind in [*FAMILIES] else "qwen3")
        return AutoTokenizer.from_pretrained(folder, config=config, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # any type: the files may hold anything
        raise LabError(f"no tokenizer loads from {folder}: {_first_line(error)}", instead) from None


def encode(tokenizer: Any, text: str, special: bool = True) -> tuple[int, ...]:
    """The ids of `text`. special: with the tokenizer's own ids around it. Raises LabError if it refuses the text."""
    try:
        text.encode()  # half a surrogate pair: the tokenizer's own error would not name it
        return tuple(tokenizer.encode(text, add_special_tokens=special))
    except Exception as error:
        raise LabError(f"the tokenizer refuses the text: {_first_line(error)}", "give another text, in UTF-8") from None


def chat_text(tokenizer: Any, messages: Sequence[Mapping[str, str]], thinking: bool) -> str:
    """`messages` by the checkpoint's own chat template, up to where the assistant's answer begins.

    Raises LabError without a template, and for messages that the template refuses.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise LabError("the checkpoint's tokenizer has no chat template", "use a checkpoint made to chat")
    try:
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
    except Exception as error:  # the template is code of the checkpoint
        cause = f"the chat template refuses the messages: {_first_line(error)}"
        raise LabError(cause, "give them as it wants them") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
