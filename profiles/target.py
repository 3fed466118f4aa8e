"""The run that a profiler watches: `python -m profiles.target` with the overrides of `python -m profiles`.

The kernel is compiled and validated as in any run, then decodes a few tokens between cudaProfilerStart and Stop, each
launch in an NVTX range of its own. A profiler that captures by these two sees nothing else.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from common.cli import launch
from common.config import RunConfig, resolve, split
from common.errors import LabError
from common.ranges import annotate, title
from common.section import Section
from common.suggest import unknown
from experiments.progress import progress

if TYPE_CHECKING:
    from common.devices import Session
    from experiments.run import Case, Lab

TOOLS = ("timeline", "nsys", "ncu")
KEYS = ("tool", "position", "tokens", "keep", "nsys", "ncu")  # beside those of a run; conf/profiles.yaml explains them


@dataclass(frozen=True)
class Request:
    """What to look at: `tokens` tokens from `position` on. nsys, ncu: the tool's own section of the configuration."""

    tool: str
    position: int
    tokens: int
    keep: bool
    nsys: Section
    ncu: Section


def request(cfg: DictConfig) -> tuple[RunConfig, Request]:
    """Split the configuration into the run and the request. Raises LabError for a bad value in either."""
    asked, rest = split(cfg, KEYS)
    if asked.text("tool") not in TOOLS:
        raise unknown("tool", asked.text("tool"), TOOLS)
    wanted = Request(
        asked.text("tool"),
        asked.whole("position", low=0),
        asked.whole("tokens", low=1),
        asked.flag("keep"),
        asked.section("nsys"),
        asked.section("ncu"),
    )
    config = resolve(rest)
    if len(config.stacks) > 1:
        names = ", ".join(stack.name for stack in config.stacks)
        raise LabError(f"a profile shows one stack, not {len(config.stacks)}", f"choose one: variant={names}")
    return config, wanted


def prove(lab: "Lab", case: "Case") -> "Case":
    """Compile (unless that is done) and validate. Raises LabError when the kernel does not pass."""
    from experiments.run import compile_stack, validate_stack

    case = validate_stack(lab, case if case.program else compile_stack(lab, case))
    if case.status != "PASSED":
        raise LabError(
            f"{case.stack.name} is {case.status}: {case.reason}", "profile a kernel that passes; see device=host"
        )
    return case


def rewind(session: "Session", position: int, tokens: int) -> None:
    """Bring the session to `position` with a history of zeros: what is read costs the same whatever it is."""
    import torch

    session.layout.check_room(position, tokens)
    history = torch.zeros(session.layout.cache.shape, dtype=torch.bfloat16)
    session.reset([0] * (position + 1), position, history)


def watched(cfg: DictConfig) -> int:
    """Decode what `cfg` asks for where a profiler can see it."""
    config, wanted = request(cfg)
    from experiments.run import Case, open_session, prepare, record

    with progress(4) as show:
        lab = prepare(config, show)
        case = prove(lab, Case(config.stacks[0]))
        show.begin("decode under the profiler")
        decode(lab, case, open_session(lab, case.program), wanted)
        record(lab, case)
    print(f"{case.stack.name}: PASSED, {wanted.tokens} tokens decoded from position {wanted.position} on")
    return 0


def decode(lab: "Lab", case: "Case", session: "Session", wanted: Request) -> None:
    """Once to warm up, and once between cudaProfilerStart and Stop."""
    stack, at_once = case.stack.variants, case.source.tokens_per_launch
    with closing(session):
        rewind(session, wanted.position, wanted.tokens)
        session.run(wanted.tokens)
        rewind(session, wanted.position, wanted.tokens)
        with _capture(lab.device.name), annotate(title("profile", stack)):
            for done in range(0, wanted.tokens, at_once):
                with annotate(title("decode", stack, f"position {wanted.position + done}")):
                    session.run(min(at_once, wanted.tokens - done))


@contextmanager
def _capture(device: str) -> Iterator[None]:
    """cudaProfilerStart and Stop; on the host device there is nothing for them to capture."""
    if device != "cuda":
        yield
        return
    from cupy.cuda import runtime

    runtime.profilerStart()
    try:
        yield
    finally:
        runtime.profilerStop()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return launch(watched, "profiles", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())
