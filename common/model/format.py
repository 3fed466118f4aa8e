"""The format of matrices in memory, bf16; its other half, for kernels, is common/kernel/weights.cuh."""


def row_bytes(columns: int) -> int:
    """Bytes of a row of a matrix, with all that it holds beside its weights."""
    return 2 * columns
