"""Control bits of SASS: how ptxas schedules an instruction, in bits 105 to 125 of its 128, sm_70 to sm_120.

For a result of fixed latency, ptxas stalls the warp long enough. One of variable latency (a load, a shuffle, a square
root) is counted by one of the warp's six scoreboards, and its consumer waits until that is 0. Layout: Jia et al. 2018
(arXiv:1804.06826, section 2.1); nvdisasm does not print these bits.
"""

from dataclasses import dataclass

SIZE, FIRST_BIT = 16, 105  # bytes of an instruction; first of its control bits
NONE = 7  # in place of a scoreboard
SCOREBOARDS = 6


@dataclass(frozen=True)
class Control:
    """Schedule of one instruction.

    stall   clocks from its issue until the warp may issue the next
    yields  True if the scheduler prefers another warp then
    written scoreboard that counts it until its result is written; read: until its operands are read; None: none
    waits   scoreboards that must be 0 before it is issued
    reuse   operands, from the first on, kept in the register file's reuse cache
    """

    stall: int
    yields: bool
    written: int | None
    read: int | None
    waits: tuple[int, ...]
    reuse: tuple[int, ...]


def control(instruction: bytes) -> Control:
    """Control bits of an instruction of SIZE bytes."""
    bits = int.from_bytes(instruction, "little") >> FIRST_BIT
    return Control(
        stall=bits & 15,
        yields=not bits >> 4 & 1,
        written=_scoreboard(bits >> 5),
        read=_scoreboard(bits >> 8),
        waits=tuple(number for number in range(SCOREBOARDS) if bits >> 11 + number & 1),
        reuse=tuple(number for number in range(4) if bits >> 17 + number & 1),
    )


def _scoreboard(bits: int) -> int | None:
    return None if bits & 7 == NONE else bits & 7
