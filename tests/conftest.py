"""Fixtures every test may use. A random test takes `seed`; the seed is printed when it fails."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from common.catalog import ROOT
from common.cli import _register_resolvers
from common.config import RunConfig, resolve
from common.model import Model

SEED = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A fresh seed for each run; LAB_SEED=n repeats a failed one."""
    value = int(os.environ.get("LAB_SEED") or random.SystemRandom().randrange(2**31))
    request.node.stash[SEED] = value
    return value


# Files are handed to the cores in this order: those that take minutes must not be the last ones left.
LONGEST = ("test_mutants.py", "test_resume.py", "test_variants.py", "test_variant_facts.py", "test_check.py")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a test that waits for a process leaves its core idle."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = (yield).get_result()
    if report.failed and SEED in item.stash:
        report.sections.append(("seed", f"repeat with LAB_SEED={item.stash[SEED]}"))


@pytest.fixture(scope="session")
def host_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels: kept between runs when LAB_CACHE names a folder, as `make test` does."""
    return Path(os.environ.get("LAB_CACHE") or tmp_path_factory.mktemp("host"))


@pytest.fixture
def configured() -> Callable[..., RunConfig]:
    """configured(*overrides): what the lab's own conf/ says with them, on the host device."""

    def compose_(*overrides: str) -> RunConfig:
        _register_resolvers(ROOT)
        with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
            return resolve(compose("config", ["device=host", *overrides]))

    return compose_


@pytest.fixture(scope="session")
def tiny() -> Model:
    """The model `conf/model/tiny.yaml` describes."""
    return Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)


@pytest.fixture(scope="session")
def odd() -> Model:
    """Shapes that no power of two divides; `conf/model/odd.yaml`."""
    return Model("odd", 72, 200, 3, 6, 2, 24, 1009, 48, 5e5, 1e-6, False)
