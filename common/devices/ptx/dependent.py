"""A rule for kernels that are launched before the one in front of them has ended: they wait before they use memory.

A launch here begins when the one before it has ended, so no run could show the mistake.
"""

from collections.abc import Sequence

from common.devices.ptx.program import Told
from common.devices.ptx.text import wrong

WAIT = "griddepcontrol.wait"
USES = ("ld", "st", "atom", "red", "cp", "ret", "exit")  # prefetches of weights, which nobody writes, may be early
OWN = {"param", "const", "shared", "local"}  # spaces that no other kernel uses


def check_waits(rows: Sequence[Told], kernel: str) -> None:
    """Raise CompileError unless each path through `rows` passes WAIT before it uses global memory or ends."""
    at = next((at for at, row in enumerate(rows) if row.opcode == WAIT), len(rows))
    for row in rows[:at]:
        opcode, *words = row.opcode.split(".")
        own = "prefetch" in words or ("global" not in words and OWN & {*words})  # a cp.async names two spaces
        if (opcode in USES and not own) or (opcode == "bra" and row.imm > at):
            raise wrong(
                row.line, f"{kernel}: {row.opcode} before {WAIT}", "wait first: the kernel in front may still run"
            )
