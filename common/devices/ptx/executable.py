"""A decoded kernel as arrays, which the machine reads: kept on disk, since decoding takes longer than running."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from common.cache.sources import sources_sha
from common.devices.ptx.rows import Decoded

DECODER = "common/devices/ptx/*.py"
ROW = np.dtype([*((name, np.uint32) for name in ("op", "label", "d", "a", "b", "c")), ("imm", np.int64),
                ("flags", np.uint32), ("more", np.uint32)], align=True)  # fmt: skip
FILLED = np.dtype([("at", np.uint32), ("kind", np.uint32), ("bytes", np.uint32), ("value", np.uint64)], align=True)


@dataclass(frozen=True)
class Executable:
    """A kernel for the machine.

    rows: ROW, [n] instructions. more: uint32, their further places. filled: FILLED, registers filled before a warp
    begins. symbols: {index in filled: variable of the module, whose address is added}. opcodes: the PTX's, [n] bytes.
    lines: int64, [n] `Where.number`. The sizes are bytes: registers of a warp, shared memory of a block, local memory
    of a thread.
    """

    rows: np.ndarray
    more: np.ndarray
    filled: np.ndarray
    symbols: Mapping[int, str]
    opcodes: np.ndarray
    lines: np.ndarray
    file_bytes: int
    shared_bytes: int
    local_bytes: int

    @classmethod
    def of(cls, decoded: Decoded) -> "Executable":
        rows = np.zeros(len(decoded.rows), ROW)
        for field in ROW.names or ():
            rows[field] = [getattr(row, field) for row in decoded.rows]
        return cls(
            rows,
            np.array(decoded.more or [0], np.uint32),
            np.array(decoded.filled, FILLED),
            decoded.symbols,
            np.array([row.opcode for row in decoded.rows], np.bytes_),
            np.array([row.line.number for row in decoded.rows], np.int64),
            decoded.file_bytes,
            decoded.shared_bytes,
            decoded.local_bytes,
        )

    def at(self, addresses: Mapping[str, int]) -> "Executable":
        """Copy linked to `addresses`, {variable of the module: address}."""
        filled = self.filled.copy()
        for index, name in self.symbols.items():
            filled["value"][index] += np.uint64(addresses[name])
        return replace(self, filled=filled)

    def stored(self) -> bytes:
        """As a file of NumPy."""
        symbols = np.array([*self.symbols], np.int64), np.array([*self.symbols.values()], np.bytes_)
        sizes = np.array([self.file_bytes, self.shared_bytes, self.local_bytes])
        file = io.BytesIO()
        np.savez_compressed(file, self.rows, self.more, self.filled, *symbols, self.opcodes, self.lines, sizes)
        return file.getvalue()

    @classmethod
    def loaded(cls, content: bytes) -> "Executable":
        """Inverse of `stored`."""
        with np.load(io.BytesIO(content)) as file:
            rows, more, filled, indices, names, opcodes, lines, sizes = (file[name] for name in file.files)
        symbols = dict(zip(indices.tolist(), (name.decode() for name in names), strict=True))
        return cls(rows, more, filled, symbols, opcodes, lines, *sizes.tolist())


def file_of(library: Path, text: str, kernel: str) -> Path:
    """The file for a kernel of a PTX text, beside the machine's library, whose name stands for its operations."""
    key = "\0".join((library.stem, sources_sha(DECODER), kernel, text))
    return library.with_name(f"{hashlib.sha256(key.encode()).hexdigest()}.rows")
