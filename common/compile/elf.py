"""Initial values of the global variables of a cubin, which is an ELF file of 64 bits."""

import struct
from collections.abc import Iterator

HEADER, SECTION, SYMBOL = "<16xHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"
SYMTAB, OBJECT = 2, 1  # types of a section, and of a symbol


def variables(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each variable that the text initializes."""
    header = struct.unpack_from(HEADER, cubin)
    start, size, count = header[5], header[10], header[11]
    sections = [struct.unpack_from(SECTION, cubin, start + size * number) for number in range(count)]
    for kind, at, length, names in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != SYMTAB:
            continue
        for offset in range(at, at + length, struct.calcsize(SYMBOL)):
            name, info, _, section, value, extent = struct.unpack_from(SYMBOL, cubin, offset)
            if info & 15 == OBJECT and 0 < section < count:
                first = sections[names][4] + name
                text = cubin[first : cubin.index(b"\0", first)].decode()
                yield text, cubin[sections[section][4] + value :][:extent]
