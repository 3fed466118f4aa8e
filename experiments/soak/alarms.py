"""False alarms: sound variants, validated again and again with fresh weights, inputs and orders of threads."""

import random
import tempfile
from pathlib import Path

from common.catalog import read_catalog
from common.check import validate
from common.config import model_named
from common.devices.host import HostDevice
from common.layout import Layout
from common.scenarios import scenarios
from common.source import build
from common.stack import choose_stacks
from common.weights import load


def false_alarms(count: int, folder: Path, seed: int) -> list[str]:
    """Validate sound variants `count` times, each with fresh weights, inputs and schedules; one line per alarm."""
    rng, catalog = random.Random(seed), read_catalog()
    model = model_named("tiny")
    stacks = choose_stacks(catalog, "all", None, {}, 256)
    alarms = []
    for number in range(count):
        stack, fresh = stacks[number % len(stacks)], rng.randrange(2**31)
        source = build([catalog.variants[name] for name in stack.variants], model, 256, stack.knobs)
        device = HostDevice(folder / "kernels", fresh)
        with tempfile.TemporaryDirectory(dir=folder) as weights:
            flat = load("synthetic", model, None, Path(weights), fresh)[2].flat
        session = device.session(device.compile(source), Layout(model), flat)
        verdict = validate(session, flat, model, scenarios(model, fresh, flat, quick=True), fresh)
        session.close()
        if not verdict.passed:
            alarms.append(f"{stack.name}: {verdict}")
    return alarms
