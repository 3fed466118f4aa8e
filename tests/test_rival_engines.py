"""Arms of the rivals: their ids against transformers' for each family, and rows of an arm that fails or differs."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rounded_cache import rounded_cache
from sampled import sampled

from common.config.resolve import model_named
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.validate.tolerances import ReferenceSteps
from experiments.engines import arms, torch_step, transformers_model
from experiments.engines.arms import ARMS, Arm
from experiments.engines.race import Ran, Run, Workload
from experiments.suite import rivals

pytestmark = pytest.mark.covers

SEED = 11  # for weights: a near tie of two logits would make an engine in float32 choose another id
PROMPTS, TOKENS = ((5,), (5, 6, 7, 8, 9)), 3
# One of each family whose heads and groups are no powers of two, without a tie, and with other constants.
HOSTILE = {
    "qwen3": Model("hostile qwen3", 72, 104, 1, 6, 2, 24, 131, 40, 5e5, 1e-5, False),
    "llama": Model(
        "hostile llama", 72, 88, 3, 6, 1, 8, 97, 33, 1e4, 1e-6, False, qk_norm=False, rope="llama3:32:1:4:8"
    ),
    "qwen2": Model("hostile qwen2", 88, 72, 1, 9, 3, 24, 211, 37, 1e3, 1e-5, False, qk_norm=False, qkv_bias=True),
}
MODELS = [*sampled([*map(model_named, ("tiny", "llama_tiny", "qwen2_tiny"))], 1), *sampled(HOSTILE.values(), 1)]
ON_CPU = ("torch", "Triton", "transformers", "transformers with a static cache")


def workload(model: Model, cache) -> Workload:
    packed, layout = load("synthetic", model, None, cache, SEED)[2], Layout(model)
    device = PtxDevice(cache / "kernels", 89, SEED, timeout=60.0)
    config = SimpleNamespace(seed=SEED, device=SimpleNamespace(name="ptx"), ptx=True)
    expected = ReferenceSteps(layout, packed.flat)
    lab = SimpleNamespace(
        device=device,
        model=model,
        layout=layout,
        packed=packed,
        config=config,
        expected=expected,
        reference_device="cpu",
    )
    return Workload(lab, PROMPTS, TOKENS)


@pytest.fixture
def work(tiny, cpu_cache) -> Workload:
    return workload(tiny, cpu_cache)


def of_transformers(work: Workload) -> list[list[int]]:
    """New ids for each prompt, token by token, over a cache that stores bf16."""
    model, found = work.transformers_model(), []
    for prompt in work.prompts:
        past, ids, new = rounded_cache()(), list(prompt), []
        for _ in range(work.tokens):
            with torch.no_grad():
                logits = model(torch.tensor([ids]), past_key_values=past).logits
            ids = [int(logits[0, -1].argmax())]
            new += ids
        found.append(new)
    return found


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_arm_chooses_the_ids_of_transformers(model, cpu_cache):
    pytest.importorskip("triton", reason="Triton has wheels for Linux only")
    work = workload(model, cpu_cache)
    want = of_transformers(work)
    assert rivals.reference(work) == want
    for name in ON_CPU:
        ran = ARMS[name].run(work)
        assert [list(run.ids) for run in ran.runs] == want, name


@pytest.mark.parametrize("name", ["qwen3", "llama", "qwen2"])
def test_no_id_ends_the_answer_of_transformers(name, cpu_cache):
    """The configuration of a Llama has an end of text, 2, of its own."""
    work = workload(HOSTILE[name], cpu_cache)
    flat, layout = torch.zeros_like(work.lab.packed.flat), work.lab.layout
    for ones in (layout.weight("final_norm").of(flat), layout.weight("embed").of(flat)):
        ones.fill_(1)
    layout.weight("lm_head").of(flat)[2].fill_(1)
    work.lab.packed = SimpleNamespace(flat=flat)
    runs = ARMS["transformers"].run(work).runs
    assert [list(run.ids) for run in runs] == [[2] * TOKENS] * len(PROMPTS)


@pytest.mark.parametrize("model", sampled(MODELS, 1), ids=lambda model: model.name)
def test_a_compiled_layer_is_the_same_function_in_all_layers(model, cpu_cache, monkeypatch):
    """By torch's own tracer, without a compiler behind it. Another graph for each layer would be too many."""
    made, compile_ = [], torch.compile
    backend = lambda graph, inputs: made.append(graph) or graph.forward  # noqa: E731
    monkeypatch.setattr(torch, "compile", lambda layer, **options: compile_(layer, backend=backend, **options))
    work = replace(workload(replace(model, layers=3), cpu_cache), prompts=PROMPTS[1:])
    ran = ARMS["torch.compile"].run(work)
    assert ran.validated == "logits, cache, ids"
    assert [list(run.ids) for run in ran.runs] == of_transformers(work)
    assert len(made) == 2  # a cache of the judge, and one of the race


def test_a_captured_step_is_replayed_for_every_token(work, monkeypatch):
    """capture itself needs torch's CUDA: here it keeps the step, which a graph would repeat."""
    replayed = []

    def capture(step: torch_step.TorchStep) -> None:
        step.replay = lambda: replayed.append(None) or step.step()

    monkeypatch.setattr(torch_step.TorchStep, "capture", capture)
    monkeypatch.setattr(arms, "judged", lambda *given: "logits, cache, ids")
    monkeypatch.setattr(Workload, "device", property(lambda work: "cuda"))
    monkeypatch.setattr(Workload, "dtype", torch.float32)
    monkeypatch.setattr("experiments.engines.race.WARM_UPS", 0)
    monkeypatch.setattr("experiments.engines.race.RUNS", 1)
    first, second = (ARMS[name].run(work).runs for name in ("torch in a CUDA graph", "torch"))
    assert [run.ids for run in first] == [run.ids for run in second]
    assert len(replayed) == len(PROMPTS) * TOKENS


def test_what_needs_a_gpu_is_not_run_without_one(work):
    """torch.compile for a CPU took a hundred seconds, and would show nothing of a GPU's."""
    names = [name for name in ARMS if "CUDA graph" in name or "compile" in name]
    states = [rivals.attempt(ARMS[name], work, [[0] * TOKENS] * 2)["state"] for name in names]
    assert len(states) == 3
    assert all(re.fullmatch(r"not run: .* needs a GPU.*; run with device=cuda", state) for state in states), states


def test_a_wrong_step_of_torch_is_not_timed(work, monkeypatch):
    """Keys that are not rotated give plausible ids; the judge names the first entry."""
    monkeypatch.setattr("experiments.run.torch_decoder.rotate", lambda heads, rope: heads)
    row = rivals.attempt(ARMS["torch"], work, [[0] * TOKENS] * 2)
    assert row["state"].startswith("wrong: key layer 0 ")
    assert row.keys() == {"state"}


def test_a_static_cache_on_a_gpu_is_transformers_own(work, monkeypatch):
    """It compiles the step itself; a CPU gives it a cache that rounds."""
    given = []

    def generate(prompt: torch.Tensor, max_new_tokens: int, **options: object) -> torch.Tensor:
        given.append(options.get("cache_implementation"))
        found = torch.cat((prompt, torch.zeros(1, max_new_tokens, dtype=torch.long)), 1)
        options["stopping_criteria"][0](found[:, : len(prompt[0]) + 1])
        return found

    model = SimpleNamespace(generate=generate, config=None)
    monkeypatch.setattr(Workload, "transformers_model", lambda work: model)
    monkeypatch.setattr(Workload, "device", "cuda")
    monkeypatch.setattr(torch, "ones_like", lambda ids: None)
    monkeypatch.setattr(torch, "tensor", lambda ids, device: torch.zeros(1, len(ids[0]), dtype=torch.long))
    monkeypatch.setattr(torch, "compile", lambda *given, **options: pytest.fail("compiled twice"))
    ran = ARMS["transformers with a static cache"].run(work)
    assert [run.ids for run in ran.runs] == [[0] * TOKENS] * 2
    assert set(given) == {"static"}


def test_transformers_that_is_absent_or_too_old_is_one_line(work, monkeypatch):
    monkeypatch.setattr(transformers_model, "hf_slots", lambda layout: [("new.weight", layout.weight("embed"))])
    with pytest.raises(LabError, match=r"misses \[.*\] and does not know \['new.weight'\]; use transformers 5"):
        work.transformers_model()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(LabError, match=r"transformers does not import: .*; pip install -e"):
        work.transformers_model()


def an_arm(*answers: Sequence[int]) -> Arm:
    """An arm that has run, with these answers: half a second until the first token, then as many a second as in all."""
    runs = [Run(ids, 0.5, len(ids), 1 / len(ids)) for ids in answers]
    return Arm(lambda work: Ran(runs, 3_000_000), "torch", "-", "-")


def test_a_failure_inside_an_engine_costs_its_row(work):
    def broken(work: Workload) -> Ran:
        raise RuntimeError("CUDA error:\nan illegal memory access")

    state = "failed: RuntimeError: CUDA error: an illegal memory access"
    assert rivals.attempt(Arm(broken, "torch", "-", "-"), work, []) == {"state": state}


def test_ids_are_the_same_up_to_the_first_that_differs(work, monkeypatch):
    row = rivals.attempt(an_arm([8, 0, 10], [1, 2, 7]), work, [[8, 9, 10], [1, 2, 3]])
    assert row["same ids"] == "3 of 6"
    assert not [name for name in row if "tok/s" in name or "ms" in name], "timed on a CPU"
    monkeypatch.setattr(Workload, "device", "cuda")
    row = rivals.attempt(an_arm([8, 0, 10], [1, 2, 7]), work, [[8, 9, 10], [1, 2, 3]])
    assert (row["tok/s at 1"], row["tok/s at 5"], row["spread %"]) == (3, 3, pytest.approx(100 / 3))
    assert (row["first token ms at 1"], row["first token ms at 5"], row["peak MB"]) == (500, 500, 3.0)


def test_an_engine_with_other_weights_is_wrong_and_has_no_times(work, monkeypatch):
    monkeypatch.setattr(Workload, "device", "cuda")
    row = rivals.attempt(an_arm([9, 9, 10], [2, 2, 3]), work, [[8, 9, 10], [1, 2, 3]])
    assert row == {"state": "wrong: no answer begins as the reference's"}
