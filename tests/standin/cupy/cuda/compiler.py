"""Stand-in for cupy.cuda.compiler."""

from typing import Any


class CompileException(Exception):
    """NVRTC refused a text; the message is its log."""

    def __init__(self, msg: str, source: str, name: str, options: Any, backend: str = "nvrtc") -> None:
        super().__init__()
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend

    def __str__(self) -> str:
        return self._msg
