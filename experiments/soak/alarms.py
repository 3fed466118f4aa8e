"""False alarms: correct variants, validated many times with fresh weights, inputs and schedules."""

import random
import tempfile
from pathlib import Path

from common.compile.source import build
from common.config.resolve import model_named
from common.devices.host import HostDevice
from common.errors import Refused
from common.model.layout import Layout
from common.model.weights import load
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.check import validate
from common.validate.scenarios import scenarios


def false_alarms(count: int, folder: Path, seed: int) -> list[str]:
    """Validate `count` times, each with fresh weights, inputs and schedules; one line for each that does not pass."""
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
        try:
            verdict = validate(session, flat, model, scenarios(model, fresh, flat, quick=True), fresh)
            if not verdict.passed:
                alarms.append(f"{stack.name}: {verdict}")
        except Refused as error:
            alarms.append(f"{stack.name}: REFUSED {error}; seed {fresh}")
        session.close()
    return alarms
