"""Arguments of a kernel in a walk: where they point to, and the few words that decide its branches."""

from common.compile.elf import section
from common.compile.source import Source

ARGUMENTS = ("weights", "cache", "scratch", "state", "waits")
APART = 40  # bits of an address below the number of its buffer
GRID = (0xC, 0x370)  # bytes of constant bank 0 that hold the number of blocks: up to sm_90, and from sm_100 on
STACK, STACK_END = (0x28, 0x37C), 1 << 20  # bytes that hold where a thread's stack ends, likewise; any address
POINTER, WORD = 8, 4


class Buffers:
    """Buffers of `source` before a step at `position`; all other words of the state are 0."""

    def __init__(self, source: Source, position: int) -> None:
        self._layout, self._position = source.layout, position

    def constants(self, cubin: bytes, kernel: str, blocks: int) -> dict[tuple[int, int], int]:
        """Words of constant memory by bank and byte: the grid, the stack, the arguments, tables of jumps."""
        found = {(0, at): blocks for at in GRID} | dict.fromkeys(((0, at) for at in STACK), STACK_END)
        arguments = len(section(cubin, f".nv.constant0.{kernel}")) - POINTER * len(ARGUMENTS) - WORD
        for number in range(len(ARGUMENTS)):
            found[0, arguments + POINTER * number] = 0
            found[0, arguments + POINTER * number + WORD] = number + 1 << APART - 32
        found[0, arguments + POINTER * len(ARGUMENTS)] = 1  # one step, or layer 1
        try:
            tables = section(cubin, f".nv.constant2.{kernel}")
        except KeyError:
            return found
        words = (tables[at : at + WORD] for at in range(0, len(tables), WORD))
        return found | {(2, WORD * at): int.from_bytes(word, "little") for at, word in enumerate(words)}

    def region(self, address: int | None) -> str:
        """The buffer that an address is in; "" where it is not known."""
        number = (address or 0) >> APART
        return ARGUMENTS[number - 1] if 0 < number <= len(ARGUMENTS) else ""

    def matrix(self, address: int | None, stage: str) -> bool:
        """True for the address of a matrix that `stage` multiplies, not of gains, biases or the token's embedding."""
        if self.region(address) != "weights" or address is None:
            return False
        layout, element = self._layout, (address & (1 << APART) - 1) // 2
        first = layout.weight("input_norm", 0).offset
        if element < first or element >= first + layout.model.layers * layout.layer_stride:
            return stage == "lm_head"
        within = (element - first) % layout.layer_stride + first
        vectors = (slot for slot in layout.layer_weights.values() if len(slot.shape) == 1)
        return not any(slot.offset <= within < slot.offset + slot.size for slot in vectors)

    def word(self, address: int) -> int | None:
        """A word that the step begins with."""
        if self.region(address) != "state":
            return None
        at = self._layout.state["position"].offset * WORD
        return self._position if address & (1 << APART) - 1 == at else 0
