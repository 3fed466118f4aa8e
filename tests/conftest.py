"""Fixtures every test may use. A random test takes `seed`; the seed is printed when it fails."""

import os
import random

import pytest

SEED = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A fresh seed for each run; LAB_SEED=n repeats a failed one."""
    value = int(os.environ.get("LAB_SEED") or random.SystemRandom().randrange(2**31))
    request.node.stash[SEED] = value
    return value


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = (yield).get_result()
    if report.failed and SEED in item.stash:
        report.sections.append(("seed", f"repeat with LAB_SEED={item.stash[SEED]}"))
