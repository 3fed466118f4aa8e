"""Shapes and traits of a decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, inf, lcm
from typing import Any

from common.errors import LabError
from common.model.format import WORD, Format, read_format, read_kv_format, whole
from common.model.rope import Scaling, read_rope

LARGEST = 2**31 - 1  # shapes become C++ ints
LEAST_NORMAL = 2.0**-126  # smallest normal number of fp32
TRAITS = ("qk_norm", "qkv_bias", "rope")
LARGE = 10_000_000  # matrix weights above which a step of the reference, and of a kernel on a CPU, takes seconds


@dataclass(frozen=True)
class Model:
    """Shapes and constants of one decoder; every field is a compile-time constant of the kernels.

    positions: size of the KV cache. tied: the LM head is the embedding matrix. format, head_format: of the layers'
    matrices and of the LM head, as `read_format` reads them; a head below bf16 has its own rows, the embedding stays.
    kv_format: of the keys and values in the cache, as `read_kv_format` reads it.
    Traits, which are Qwen3's by default: qk_norm: query and key heads are RMS-normalized before they are rotated.
    qkv_bias: a vector is added to the rows of q, k and v. rope: scaling of its frequencies, as `read_rope` reads it.
    `common.model.families` has the traits of each family. Errors name a field as `model.FIELD`.
    """

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int
    rope_theta: float
    rms_eps: float
    tied: bool
    format: str = "bf16"
    head_format: str = "bf16"
    qk_norm: bool = True
    qkv_bias: bool = False
    rope: str = "default"
    kv_format: str = "bf16"

    def __post_init__(self) -> None:
        for field in ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab", "positions"):
            if not 1 <= getattr(self, field) <= LARGEST:
                raise LabError(
                    f"model {self.name}: model.{field} is {getattr(self, field)}",
                    f"give an integer from 1 to {LARGEST}",
                )
        # A row of any weight matrix starts on a 16-byte boundary, so that 128-bit loads are legal everywhere.
        for field in ("hidden", "intermediate", "head_dim"):
            if getattr(self, field) % 8:
                raise LabError(
                    f"model {self.name}: model.{field} is {getattr(self, field)}, not a multiple of 8",
                    "the kernels load up to 8 bf16 weights at once; choose a model whose rows are multiples of 8",
                )
        if self.heads % self.kv_heads:
            raise LabError(
                f"model {self.name}: {self.heads} query heads do not share {self.kv_heads} KV heads evenly",
                "make model.heads a multiple of model.kv_heads",
            )
        widths = (self.hidden, self.query, self.intermediate)
        for form, columns in zip(self.formats, (widths, (self.hidden,)), strict=True):
            form.check(columns, f"model {self.name}, format {form}")
        if not 1 <= self.rope_theta < inf or not (self.rms_eps == 0 or LEAST_NORMAL <= self.rms_eps < 1):
            raise LabError(
                f"model {self.name}: model.rope_theta is {self.rope_theta}, model.rms_eps is {self.rms_eps}",
                "give a model.rope_theta from 1 on, and a model.rms_eps below 1: 0, or a normal number of fp32",
            )
        read_rope(self.rope)
        read_kv_format(self.kv_format)

    @property
    def query(self) -> int:
        """Width of all query heads together, in elements."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """Width of all key (or value) heads together, in elements."""
        return self.kv_heads * self.head_dim

    @property
    def layer_matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of each matrix of a layer; `qkv` holds the rows of q, then k, then v."""
        return {
            "qkv": (self.query + 2 * self.kv, self.hidden),
            "o": (self.hidden, self.query),
            "gate": (self.intermediate, self.hidden),
            "up": (self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }

    @property
    def matrix_weights(self) -> int:
        """Matrix elements one token must read: all layers and the LM head (Qwen3-0.6B: 595,984,384).

        Vectors, of norms and of biases (0.01 % more), and the one embedding row are left out, as in every published
        figure.
        """
        return self._of_all_rows(lambda form, columns: columns)

    @property
    def large(self) -> bool:
        """True if a step takes seconds on a CPU."""
        return self.matrix_weights > LARGE

    def bytes_per_token(self, position: int) -> int:
        """Bytes of matrices and KV cache read, each once, by a token at `position` (attends to itself)."""
        return self._of_all_rows(Format.row_bytes) + self.kv_bytes_per_position * (position + 1)

    def _of_all_rows(self, quantity: Callable[[Format, int], int]) -> int:
        """Sum of a row's `quantity`, given its format and columns, over all layers' matrices and the LM head."""
        form, head = self.formats
        layer = sum(rows * quantity(form, columns) for rows, columns in self.layer_matrices.values())
        return self.layers * layer + self.vocab * quantity(head, self.hidden)

    @property
    def formats(self) -> tuple[Format, Format]:
        """Formats of the layers' matrices and of the LM head."""
        return read_format(self.format), read_format(self.head_format)

    @property
    def shape(self) -> str:
        """Its name without formats: that of a yaml, or of a checkpoint."""
        return self.name.removesuffix(_suffix(self.format, self.head_format, self.kv_format))

    def in_formats(self, form: str = "bf16", head: str = "bf16", kv: str = "bf16") -> "Model":
        """The same shapes in other formats, which are part of its name unless they are bf16."""
        return replace(self, name=self.shape + _suffix(form, head, kv), format=form, head_format=head, kv_format=kv)

    def like(self, other: "Model") -> "Model":
        """These shapes with the traits and formats of `other`, and rows widened to whole groups of these formats."""
        form, head = (each.tried for each in other.formats)
        group = form.group or WORD
        wider = replace(
            self.in_formats(),
            hidden=whole(self.hidden, lcm(group, head.group or WORD)),
            intermediate=whole(self.intermediate, group),
            head_dim=whole(self.head_dim, lcm(WORD, group // gcd(group, self.heads))),
            **other.traits,
        )
        return wider.in_formats(str(form), str(head), other.kv_format)

    @property
    def traits(self) -> dict[str, Any]:
        """The fields of TRAITS: what its layers compute besides the common block."""
        return {name: getattr(self, name) for name in TRAITS}

    @property
    def rope_scaling(self) -> Scaling:
        """The scaling of RoPE's frequencies; factor 1 without any."""
        return read_rope(self.rope)

    @property
    def kv_bytes_per_position(self) -> int:
        """Bytes of keys and values of one position over all layers (Qwen3-0.6B: 114,688; in fp8 and int8 64,512)."""
        return self.layers * 2 * self.kv_heads * read_kv_format(self.kv_format).row_bytes(self.head_dim)


def _suffix(form: str, head: str, kv: str) -> str:
    """The part of a model's name that says its formats; nothing for bf16."""
    return "".join(f" {text}" for text in (form, f"head {head}", f"kv {kv}") if not text.endswith("bf16"))
