"""Shapes of a Qwen3-style decoder."""

from collections.abc import Callable
from dataclasses import dataclass

from common.errors import LabError
from common.model.format import row_bytes

LARGEST = 2**31 - 1  # shapes become C++ ints
LARGE = 10_000_000  # matrix weights above which a step of the reference, and of a kernel on a CPU, takes seconds


@dataclass(frozen=True)
class Model:
    """Shapes and constants of one decoder; every field is a compile-time constant of the kernels.

    positions: size of the KV cache. tied: the LM head is the embedding matrix.
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

    def __post_init__(self) -> None:
        for field in ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab", "positions"):
            if not 1 <= getattr(self, field) <= LARGEST:
                raise LabError(
                    f"model {self.name}: {field} is {getattr(self, field)}", f"give an integer from 1 to {LARGEST}"
                )
        if self.query + 2 * self.kv > LARGEST:
            raise LabError(
                f"model {self.name}: {self.query + 2 * self.kv} rows of q, k and v, more than {LARGEST}",
                "give fewer heads, or a smaller head_dim",
            )
        # A row of any weight matrix starts on a 16-byte boundary, so that 128-bit loads are legal everywhere.
        for field in ("hidden", "intermediate", "head_dim"):
            if getattr(self, field) % 8:
                raise LabError(
                    f"model {self.name}: {field} is {getattr(self, field)}, not a multiple of 8",
                    "the kernels load up to 8 bf16 weights at once; choose a model whose rows are multiples of 8",
                )
        if self.heads % self.kv_heads:
            raise LabError(
                f"model {self.name}: {self.heads} query heads do not share {self.kv_heads} KV heads evenly",
                "make heads a multiple of kv_heads",
            )
        if self.rope_theta <= 0 or self.rms_eps < 0:
            raise LabError(
                f"model {self.name}: rope_theta {self.rope_theta}, rms_eps {self.rms_eps}",
                "give a positive rope_theta and an rms_eps that is not negative",
            )

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

        The norm vectors (0.01 % more) and the one embedding row are left out, as in every published figure.
        """
        return self._of_all_rows(lambda columns: columns)

    @property
    def large(self) -> bool:
        """True if a step takes seconds on a CPU."""
        return self.matrix_weights > LARGE

    def bytes_per_token(self, position: int) -> int:
        """Bytes of matrices and KV cache read, each once, by a token at `position` (attends to itself)."""
        return self._of_all_rows(row_bytes) + self.kv_bytes_per_position * (position + 1)

    def _of_all_rows(self, quantity: Callable[[int], int]) -> int:
        """Sum of a row's `quantity`, given its columns, over the rows of all layers' matrices and of the LM head."""
        layer = sum(rows * quantity(columns) for rows, columns in self.layer_matrices.values())
        return self.layers * layer + self.vocab * quantity(self.hidden)

    @property
    def kv_bytes_per_position(self) -> int:
        """Bytes of keys and values of one position over all layers (Qwen3-0.6B: 114,688)."""
        return self.layers * 2 * self.kv * 2
