"""Variables of a cubin, an ELF file of 64 bits."""

import struct
from collections.abc import Iterator

HEADER, SECTION, SYMBOL = "<16xHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"
SYMTAB, OBJECT = 2, 1  # types of a section, and of a symbol


def variables(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each initialized variable of a cubin."""
    sections = _sections(cubin)
    for kind, at, length, names in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != SYMTAB:
            continue
        for offset in range(at, at + length, struct.calcsize(SYMBOL)):
            name, info, _, place, value, extent = struct.unpack_from(SYMBOL, cubin, offset)
            if info & 15 == OBJECT and 0 < place < len(sections):
                yield _name(cubin, sections[names][4] + name), cubin[sections[place][4] + value :][:extent]


def _sections(cubin: bytes) -> list[tuple[int, ...]]:
    header = struct.unpack_from(HEADER, cubin)
    start, size, count = header[5], header[10], header[11]
    return [struct.unpack_from(SECTION, cubin, start + size * number) for number in range(count)]


def _name(cubin: bytes, at: int) -> str:
    return cubin[at : cubin.index(b"\0", at)].decode()
