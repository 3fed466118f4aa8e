"""A layout of quantized matrices in a checkpoint, and the configuration that describes it."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from common.errors import LabError
from common.model.checkpoint import AGAIN, Checkpoint
from common.model.format import WORD, Format
from common.model.shapes import Model

if TYPE_CHECKING:
    import torch

Parts = Mapping[str, "torch.Tensor"]
Shapes = Mapping[str, tuple[int, ...]]  # shapes of a matrix's tensors, by the last part of their name
Numbers = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]

USE = "use the bf16 checkpoint of this model, which format= rounds"

NOTHING = "(?!)"  # pattern that nothing matches


@dataclass(frozen=True)
class Quantization:
    """One layout of quantized matrices, which are all those of the layers; the head and the embedding are not.

    format   of the rows that are made; its groups divide every row, and those of the checkpoint, or are the same
    group    columns that share a scale in the checkpoint; 0: a whole row
    shapes   tensors of a matrix [rows, columns] and their shapes
    dtypes   that each of them may have, as safetensors spells them
    numbers  (uint8 numbers [rows, columns] as `Format.joined` takes them, scales [rows, groups], zero points likewise
             as int32) of these tensors, and the name of their matrix
    keeps    True for the name of a matrix that the configuration leaves in bf16
    unused   pattern of tensors without effect on weights, below a layer
    reading  all that decides what the stored bytes mean, as text
    """

    format: Format
    group: int
    shapes: Callable[[int, int], Shapes]
    dtypes: Mapping[str, Sequence[str]]
    numbers: Callable[[Parts, str], Numbers]
    keeps: Callable[[str], bool]
    unused: str
    reading: str

    def rows(self, parts: Parts, name: str) -> "torch.Tensor":
        """A matrix in its format, bf16 elements [rows, row_bytes / 2]. parts: its tensors. name: of the matrix.

        Raises LabError for NaN among the numbers, for a scale that is not positive and finite, and for what its
        configuration rules out.
        """
        import torch

        numbers, scale, zero = self.numbers(parts, name)
        kept = scale.to(torch.float16 if self.format.half else torch.bfloat16)
        usable = torch.isfinite(scale) & (scale > 0)
        if not bool(usable.all()):
            raise LabError(f"{name}: a scale is {scale[~usable][0].item()}", AGAIN)
        if not torch.equal(kept.double(), scale.double()):
            raise LabError(f"{name}: a scale has more digits than {'fp16' if self.format.half else 'bf16'}", USE)
        if self.format.kind == "fp8" and bool((numbers & 0x7F == 0x7F).any()):
            raise LabError(f"{name}: a weight is NaN", AGAIN)
        if self.group != self.format.group:  # a part of a group is last in a row; `format` has a part for each scale
            times, count = self.group // self.format.group, numbers.shape[1] // self.format.group
            kept, zero = (each.repeat_interleave(times, 1)[:, :count] for each in (kept, zero))
        return self.format.joined(numbers, kept, zero)


@dataclass(frozen=True)
class Found:
    """A `quantization_config`, with what its meaning depends on besides. place: of it, for messages.

    All methods raise LabError for values that are not read, with their key.
    """

    place: str
    config: Mapping[str, Any]
    checkpoint: Checkpoint
    model: Model

    @property
    def text(self) -> str:
        return json.dumps(self.config, sort_keys=True)

    def below(self, key: str, config: Any) -> "Found":
        """A part of it, the value of `key`."""
        if not isinstance(config, Mapping):
            raise LabError(f"{self.place}: {key} is {short(config)}", USE)
        return Found(f"{self.place}: {key}", config, self.checkpoint, self.model)

    def only(self, key: str, *wanted: Any, default: Any = None) -> None:
        """Check that the value of `key`, or else `default`, is one of those wanted."""
        value = self.config.get(key, default)
        if value not in wanted:
            named = " or ".join(map(short, wanted))
            raise LabError(f"{self.place}: {key} is {short(value)}, and only {named} is read", USE)

    def spelled(self, key: str, other: str, default: str) -> str:
        """The value of either of two keys of the same meaning, in lower case."""
        given = {str(self.config[each]).lower() for each in (key, other) if self.config.get(each) is not None}
        if len(given) > 1:
            raise LabError(
                f"{self.place}: {key} and {other} are {' and '.join(sorted(given))}", "leave the wrong one out"
            )
        return next(iter(given), default)

    def bits(self, key: str) -> int:
        bits = self.config.get(key)
        if bits not in (4, 8):
            raise LabError(f"{self.place}: {key} is {short(bits)}", f"give a checkpoint of 4 or 8 bits; or {USE}")
        return int(bits)

    def group(self, default: int | None = None) -> int:
        """Columns of a group; 0 for a whole row, which checkpoints spell -1."""
        group = self.config.get("group_size")
        group = default if group is None else group
        if type(group) is not int or (group != -1 and (group < WORD or group % WORD)):
            cause = f"{self.place}: group_size is {short(group)}"
            raise LabError(cause, f"give a checkpoint with a multiple of {WORD}; or {USE}")
        return max(group, 0)

    def divided(self, group: int) -> int:
        """The largest part of a group that divides every row: its last group in a row may be shorter."""
        return gcd(group, self.model.hidden, self.model.query, self.model.intermediate) if group else 0

    def scales(self, part: str) -> tuple[str, ...]:
        """Dtypes of the scales, tensors `part`: those that the format of one of them holds."""
        half = any(
            each.dtype == "F16" and name.endswith(f"_proj.{part}") for name, each in self.checkpoint.tensors.items()
        )
        return ("F16",) if half else ("BF16", "F32")

    def names(self, key: str) -> list[str]:
        """A list of names and patterns; none if it is not given."""
        given = self.config.get(key)
        if given is None:
            return []
        if not (isinstance(given, list) and all(isinstance(one, str) for one in given)):
            raise LabError(f"{self.place}: {key} is {short(given)}", "give a list of names")
        return given

    def pattern(self, key: str, texts: Sequence[str]) -> re.Pattern[str]:
        """A pattern of any of `texts`."""
        try:
            return re.compile("|".join(f"(?:{text})" for text in texts) or NOTHING)
        except re.error as error:
            raise LabError(f"{self.place}: {key}: {error}", "give names, or patterns of regular expressions") from None

    def not_converted(self, *keys: str) -> Callable[[str], bool]:
        """True for the name of a module that is left in bf16, by the rules of transformers for such lists."""
        listed = [one for key in keys for one in self.names(key)]
        pattern = self.pattern(keys[0], [rf"(?:{one})(?:(?<=\.)|(?=\.|$))" for one in listed])
        return lambda module: bool(pattern.match(module)) or module.endswith(tuple(listed))
