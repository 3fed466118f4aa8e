"""Fixtures of all tests. A random test takes `seed`, which is printed when it fails."""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sampled import SAMPLE, seed_for
from standin import installed

from common.cache.folder import NAME
from common.config.cli import composed
from common.config.resolve import resolve
from common.config.run_config import RunConfig
from common.model.shapes import Model

if TYPE_CHECKING:
    from cubins import Nvrtc

gc.disable()  # until all is imported and collected, none of which becomes garbage: pytest_runtestloop
# Set by `make test ARGS=...`, which a `make` in a test would take, and by who likes colours, which no test expects.
for passed in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "FORCE_COLOR"):
    os.environ.pop(passed, None)
SEED = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of the test's own, another one at each commit; LAB_SEED=n gives one."""
    value = seed_for(request.node.nodeid)
    request.node.stash[SEED] = value
    return value


# Files are distributed in this order: the longest, of minutes, start first.
LONGEST = """
mutants pages kernels experiments_on_gpu standin_faults lab variant_facts experiments_cpu counts operators
isolation tour resume experiment_rows one_stage_more trials variants full_size ring_facts
store_runs identity config results nsight tune_on_gpu standin_evidence hostile matrix damage
coverage_holes
"""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers more than cores: a test that waits for a process leaves its core idle."""
    return (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {f"test_{name}.py": number for number, name in enumerate(LONGEST.split())}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Keep what has been imported and collected: searching it for garbage again and again takes up to a tenth."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = (yield).get_result()
    if report.failed:
        seed = f" LAB_SEED={item.stash[SEED]}" if SEED in item.stash else ""
        report.sections.append(("seed", f"repeat with LAB_SAMPLE={SAMPLE}{seed}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"sample: {SAMPLE}")


@pytest.fixture(scope="session")
def nvrtc(cpu_cache: Path) -> "Nvrtc":
    """Cubins of this run."""
    from cubins import Nvrtc  # here, as it imports torch, which the process that starts the workers does without

    return Nvrtc(cpu_cache / "cubins")


@pytest.fixture(scope="session")
def cpu_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels: kept between runs when LAB_CACHE names a folder, as `make test` does."""
    folder = Path(os.environ.get("LAB_CACHE") or tmp_path_factory.mktemp("kernels"))
    folder.mkdir(exist_ok=True)
    # A run has its kernels in a folder below cache=, which may be below XDG_CACHE_HOME. Here they are all one place.
    for name in ("kernels", NAME):
        with suppress(FileExistsError):
            (folder / name).symlink_to(".")
    return folder


@pytest.fixture(autouse=True, scope="session")
def forked() -> Iterator[None]:
    """Children of this process are forked from a server, except under `coverage`, which begins with an interpreter."""
    if "coverage" in sys.modules:
        yield
        return
    from forked import Forking  # here, as it imports torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.processes.SPAWN", Forking)
        yield


@pytest.fixture
def one_core(seed: int) -> Iterator[None]:
    """One core for all that the test starts, so a sweep has one worker: where a second one proves no more."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.Random(seed).choice(sorted(before))})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A folder for packed weights."""
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The checkpoint of tests/checkpoints.py."""
    from checkpoints import save  # here, as it imports torch

    save(tmp_path / "ckpt")
    return tmp_path / "ckpt"


@pytest.fixture
def cupy():
    """The stand-in of tests/standin, fresh."""
    with installed():
        import cupy

        yield cupy


@pytest.fixture
def misuse(cupy):
    """Its error for what CuPy or a GPU would not report."""
    from standin_gpu.errors import Misuse

    return Misuse


@pytest.fixture
def configured() -> Callable[..., RunConfig]:
    """configured(*overrides): the configuration of the lab's own conf/ with overrides, on the ptx device."""

    def compose_(*overrides: str) -> RunConfig:
        return resolve(composed("config", ["device=ptx", *overrides]))

    return compose_


@pytest.fixture(scope="session")
def tiny() -> Model:
    """The model of `conf/model/tiny.yaml`."""
    return Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)


@pytest.fixture(scope="session")
def odd() -> Model:
    """The model of `conf/model/odd.yaml`: sizes that are no power of two."""
    return Model("odd", 72, 200, 3, 6, 2, 24, 1009, 48, 5e5, 1e-6, False)
