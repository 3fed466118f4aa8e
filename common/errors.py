"""The one exception a user's mistake raises: what is wrong, and what to do about it."""


class LabError(Exception):
    """A mistake or a missing thing, told in one line.

    `cause` says what is wrong with names and figures; `remedy` says what to do. The command line prints
    `error: cause; remedy` and exits with 2; a traceback appears only with `debug=true`.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        self.cause = " ".join(cause.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.cause}; {self.remedy}")


class CompileError(LabError):
    """The device's compiler refused the flattened source. `log` is its whole output."""

    def __init__(self, cause: str, remedy: str, log: str) -> None:
        super().__init__(cause, remedy)
        self.log = log


class Refused(LabError):
    """The request is well formed, but this device, grid or stack cannot run it."""


class Hung(LabError):
    """A launch could not go on. `report` says who waits where, a line each."""

    def __init__(self, cause: str, remedy: str, report: str) -> None:
        super().__init__(cause, remedy)
        self.report = report


class Crashed(LabError):
    """A launch wrote outside its buffers, aborted or left a CUDA error behind."""


class OutOfMemory(LabError):
    """The GPU, or this machine, has less memory than the stack needs."""


class Race(Crashed):
    """Two threads used the same memory unordered, one of them writing. `report` has a line for each pair of places."""

    def __init__(self, cause: str, remedy: str, report: str) -> None:
        super().__init__(cause, remedy)
        self.report = report
