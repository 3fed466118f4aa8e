"""Identity of a record: a stack against one parent is another question than the same stack against another one."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.config.run_config import Timing, Validation
from common.json_values import to_json
from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.run.describe import identity, origin_of, proof_of, request_of
from experiments.run.sweep import open_sweep
from experiments.tables.progress import Quiet

pytestmark = pytest.mark.cpu
REQUESTED = ("validation", "timing", "blocks", "archs")
STACK = ("redundant_rmsnorm", "fused_head")


@pytest.fixture
def sweep(configured, cpu_cache: Path, tmp_path: Path, seed):
    """sweep(stack, ...): the record of each, resumed from one file of records."""
    overrides = ["model=tiny", "archs=[]", f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl", f"seed={seed}"]
    config = replace(configured("experiment=ablation", *overrides), blocks=2)

    def run(*stacks) -> list[dict[str, Any]]:
        with open_sweep(replace(config, stacks=stacks), Quiet()) as opened:
            opened.run()
        return [opened.records[index] for index in range(len(stacks))]

    run.experiment = Experiment(config, Quiet())
    return run


def test_a_key_has_what_the_record_says_it_is_of(tiny):
    """Each argument of it in turn; two GPUs of one name are one device."""
    stack, packed = Stack("s", ("v",), (), {"v": {"k": 1}}), SimpleNamespace(sha="weights", source="some")
    config = SimpleNamespace(threads=1, validation=None, timing=None, blocks=1, archs=(), seed=1)

    def key_of(text, stack, model, packed, device) -> str:
        return origin_of(SimpleNamespace(config=config, packed=packed, model=model), device, stack, text)["key"]

    device = {"device": "cuda", "gpu": "H200", "compiler": "NVRTC 13"}
    base = ("text", stack, tiny, packed, device)
    others = (
        "another",
        replace(stack, knobs={"v": {"k": 2}}),
        replace(tiny, positions=63),
        SimpleNamespace(sha="others", source="some"),
    )
    keys = [key_of(*base[:at], other, *base[at + 1 :]) for at, other in enumerate(others)]
    keys += [key_of(*base[:4], {**device, name: "another"}) for name in ("gpu", "compiler")]
    assert len({key_of(*base), *keys}) == 1 + len(keys)
    assert key_of(*base[:4], {**device, "device": "another"}) == key_of(*base)


def test_every_setting_that_decides_an_answer_is_part_of_its_identity(configured):
    config = configured("model=tiny", "seed=5")
    others = (Validation(2, None, "all"), Timing(1, 1, 1, 1, 0.1, 1, None, ()), 3, ("sm_80",))
    row = to_json({"key": "k", "parent": ["p"], "seed": 5, "validator": "v", "asked": request_of(config)})
    assert tuple(row["asked"]) == REQUESTED
    rows = {
        name: {**row, "asked": to_json(request_of(replace(config, **{name: other})))}
        for name, other in zip(REQUESTED, others, strict=True)
    }
    rows |= {
        name: {**row, name: other} for name, other in (("key", "l"), ("parent", []), ("seed", 6), ("validator", "w"))
    }
    assert {name for name, other in rows.items() if identity(other) == identity(row)} == {"seed", "validator"}
    assert {name for name, other in rows.items() if proof_of(other) == proof_of(row)} == {"parent", "timing", "archs"}


def test_a_resumed_stack_is_not_given_the_record_of_another_parent(sweep):
    own = replace(sweep.experiment.choose(STACK, {}), parent=())
    without = replace(own, name="both - fused_head", parent=STACK[:1])
    (first,) = sweep(without)
    (second,) = sweep(own)
    assert (first["parent"], second["parent"]) == (list(STACK[:1]), [])
    assert first["id"] != second["id"]
    assert [row["id"] for row in sweep(without, own)] == [first["id"], second["id"]]


def test_a_resumed_record_has_the_name_that_was_asked_for(sweep):
    """One stack with one parent under two names is measured once."""
    own = sweep.experiment.choose(STACK, {})
    (first,) = sweep(replace(own, name="published"))
    (second,) = sweep(own)
    assert (first["id"], second["variant"]) == (second["id"], "redundant_rmsnorm+fused_head")
