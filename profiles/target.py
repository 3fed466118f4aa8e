"""Target process of a profiler: `python -m profiles.target` with the overrides of `python -m profiles`.

The kernel is compiled and validated as in any run. Then it decodes a few tokens between cudaProfilerStart and Stop,
each launch in its own NVTX range. nsys and ncu are started so that they capture only between these two calls.
"""

from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import resolve_one, split
from common.config.run_config import RunConfig
from common.config.section import Natural, Section
from common.devices.nvtx import annotate, title
from common.errors import LabError
from common.lazy import cupy
from common.stacks.stack import Stack
from experiments.run.setup import Setup
from experiments.run.timeline import rewind
from experiments.tables.progress import progress

if TYPE_CHECKING:
    from experiments.run.steps import LabStack

PROFILE_KEYS = ("tool", "position", "count", "keep", "nsys", "ncu")  # added to a run's keys; see conf/profiles.yaml


@dataclass(frozen=True)
class Profile:
    """A profile of the stack of `config`: `count` tokens from `position` on. nsys, ncu: their sections."""

    config: RunConfig
    tool: Literal["timeline", "nsys", "ncu"]
    position: Natural
    count: int
    keep: bool
    nsys: Section
    ncu: Section


def read(cfg: DictConfig) -> Profile:
    """The profile that a configuration describes. Raises LabError for a bad value."""
    own, rest = split(cfg, PROFILE_KEYS)
    made = Profile(resolve_one(rest, "a profile"), **own.fields(Profile, but={"config"}))
    end = made.position + (1 if made.tool == "timeline" else made.count)
    if (model := made.config.model) and end > model.positions:
        cause = f"position={made.position} needs a cache of {end} positions, and this one has {model.positions}"
        raise LabError(cause, f"give a lower position= or count=, or model.positions={end}")
    return made


def require_passed(setup: Setup, stack: Stack) -> "LabStack":
    """Compile and validate. Raises LabError when the kernel does not pass."""
    from experiments.run.steps import LabStack

    setup.check()
    passed = LabStack(setup, stack).compile()
    if not passed.validate().passed:
        raise LabError(
            f"{passed.name} is {passed.found.status}: {passed.found.reason}",
            "profile a kernel that passes; see device=ptx",
        )
    return passed


def run_target(cfg: DictConfig) -> int:
    """Validate the stack of `cfg`, then decode its tokens under the profiler."""
    made = read(cfg)
    with progress(4) as show:
        stack = require_passed(Setup(made.config, show), made.config.stacks[0])
        show.begin("decode under the profiler")
        decode(stack, made.position, made.count)
        stack.record()
    print(f"{stack.name}: PASSED, {made.count} tokens decoded from position {made.position} on")
    return 0


def decode(passed: "LabStack", position: int, tokens: int) -> None:
    """Decode twice: once to warm up, and once between cudaProfilerStart and Stop."""
    stack, per_launch = passed.stack.variants, passed.source.tokens_per_launch
    with passed.setup.exclusive_gpu(), closing(passed.session()) as session, ExitStack() as capture:
        rewind(session, position, tokens)
        session.run(tokens)
        rewind(session, position, tokens)
        if passed.setup.device.name == "cuda":
            cupy.cuda.runtime.profilerStart()
            capture.callback(cupy.cuda.runtime.profilerStop)
        with annotate(title("profile", stack)):
            for done in range(0, tokens, per_launch):
                with annotate(title("decode", stack, f"position {position + done}")):
                    session.run(min(per_launch, tokens - done))


main = partial(run_task, run_target, "profiles")

if __name__ == "__main__":
    raise SystemExit(main())
