"""The Triton arm by the PTX of its kernels: judged as a megakernel is; planted errors; what is missing."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from common.devices.ptx.device import PtxDevice
from common.devices.unwritten import NUMBER
from common.errors import Crashed, LabError
from common.model.layout import LINE, Layout
from common.model.shapes import Model
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import Start, drawn, scenarios
from common.validate.tolerances import ReferenceSteps
from experiments.engines import triton_arm
from experiments.engines.arms import ARMS
from experiments.engines.race import Workload
from experiments.suite import rivals

pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from experiments.engines.triton_arm.session import TritonSession
from experiments.engines.triton_arm.steps import TILES, Launch, Tiles, TritonStep, kernels

SEED = 11  # for weights and scenarios: a near tie of two logits would make a float32 engine choose another id
PROMPT = (5, 6, 7)
GROUPS_OF_3 = Model("groups of 3", 72, 104, 1, 6, 2, 24, 131, 40, 5e5, 1e-5, False)
STARTS = (Start(GROUPS_OF_3.positions - 1), Start(15, steps=2, given=2))
SMALL = Tiles(rows=4, head_rows=16, columns=64, positions=16, logits=64, heads=8)  # several turns, the last partial


def packed(model: Model, cpu_cache) -> torch.Tensor:
    return load("synthetic", model, None, cpu_cache, SEED)[2].flat


@pytest.fixture(scope="module")
def expected(tiny, cpu_cache) -> ReferenceSteps:
    return ReferenceSteps(Layout(tiny), packed(tiny, cpu_cache))


@pytest.fixture
def session(tiny, cpu_cache) -> TritonSession:
    return TritonSession(Layout(tiny), packed(tiny, cpu_cache), PtxDevice(cpu_cache / "kernels"))


def test_every_stage_passes_on_tiny(tiny, session, expected):
    verdict = validate(session, expected.weights, scenarios(tiny, SEED, expected.weights, quick=True), SEED, expected)
    assert verdict.passed, str(verdict)
    assert verdict.steps == 5


def test_their_ptx_passes_with_groups_of_3_and_has_no_race(cpu_cache, seed):
    """With tiles that do not fit. A row beyond the matrix is then a fault at its line."""
    weights, layout = packed(GROUPS_OF_3, cpu_cache), Layout(GROUPS_OF_3)
    session = TritonSession(layout, weights, PtxDevice(cpu_cache / "kernels", races=True, seed=seed), SMALL)
    some = drawn(STARTS, layout, weights, torch.Generator().manual_seed(SEED))
    verdict = validate(session, weights, some, SEED)
    assert verdict.passed, str(verdict)
    of("norm_matvec", -1, constant(COUNT=132))(session.kernels.launches)
    session.reset([1], 0)
    with pytest.raises(Crashed, match=r"^the Triton kernel norm_matvec: .*kernels\.py:\d+"):
        session.run()


def of(kernel: str, number: int, change: Callable[[Launch], Launch]) -> Callable[[list[Launch]], None]:
    """Change the launch `number` of a kernel."""

    def plant(launches: list[Launch]) -> None:
        places = [at for at, launch in enumerate(launches) if launch.kernel.__name__ == kernel]
        launches[places[number]] = change(launches[places[number]])

    return plant


def constant(**values: float) -> Callable[[Launch], Launch]:
    return lambda launch: replace(launch, constants={**launch.constants, **values})


def input_as_residual(launch: Launch) -> Launch:
    x, matrix, _, out = launch.given
    return replace(launch, given=(x, matrix, x, out))


def old_residual(launch: Launch) -> Launch:
    """The stream after attention, in place of that before it: nothing, in the first run."""
    x, matrix, _, out = launch.given
    return replace(launch, given=(x, matrix, out, out))


PLANTED = {
    "its input as residual": (of("matvec_residual", 2, input_as_residual), "o_proj layer 1"),
    "its own tap as residual": (of("matvec_residual", 3, old_residual), "down layer 1"),
    "another eps": (of("norm_gate_up", 0, constant(EPS=1e-2)), "post_norm layer 0"),
    "heads without groups": (of("attention", 1, constant(GROUP=4)), "attention layer 1"),
    "no scale": (of("attention", 0, constant(SCALE=1.0)), "attention layer 0"),
    "one row less": (of("norm_matvec", -1, constant(COUNT=502)), "lm_head"),
    "one id less": (of("argmax", 0, constant(VOCAB=1)), "argmax"),
    "a prompt that is overwritten": (of("argmax", 0, constant(GIVEN=2)), "state"),
    "the wrong half": (of("qk_norm_rope", 0, constant(HALF=8)), "qk_norm_rope layer 0"),
    "the entry of another position": (of("qk_norm_rope", 1, constant(POSITION=LINE)), "key layer 1"),
}


TRAITS = Model(
    "both traits", 48, 40, 1, 6, 2, 24, 131, 40, 1e4, 1e-5, True, qk_norm=False, qkv_bias=True, rope="llama3:8:1:4:32"
)


@pytest.mark.parametrize(
    ("kernel", "change", "place"),
    [
        ("norm_matvec", {"EPS": TRAITS.rms_eps}, ""),
        ("norm_matvec", {"BIAS": False}, "qkv layer 0"),
        ("qk_norm_rope", {"NORM": True}, "qk_norm_rope layer 0"),
    ],
)
def test_a_bias_and_no_norm_are_judged_too(kernel, change, place, cpu_cache):
    """The first change is none: all stages pass."""
    weights = packed(TRAITS, cpu_cache)
    changed = TritonSession(Layout(TRAITS), weights, PtxDevice(cpu_cache / "kernels"), SMALL)
    of(kernel, 0, constant(**change))(changed.kernels.launches)
    some = drawn([Start(TRAITS.positions - 1)], Layout(TRAITS), weights, torch.Generator().manual_seed(SEED))
    verdict = validate(changed, weights, some, SEED)
    assert verdict.passed if not place else str(verdict.mismatch).startswith(f"{place} "), str(verdict)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found(name, tiny, session, expected):
    plant, place = PLANTED[name]
    plant(session.kernels.launches)
    some = drawn([Start(3, given=2)], session.layout, expected.weights, torch.Generator().manual_seed(SEED))
    verdict = validate(session, expected.weights, some, SEED, expected)
    assert str(verdict.mismatch).startswith(f"{place} "), str(verdict)


def test_a_write_beside_a_buffer_ends_the_run(session):
    session.reset([1], 0)
    session._state._margins[1][0] = NUMBER
    with pytest.raises(Crashed, match="outside the state buffer; look for a missing mask"):
        session.scratch()


def test_a_run_beyond_the_cache_or_beside_another_is_refused(session):
    session.reset([1], 0)
    with pytest.raises(LabError, match="do not fit a cache of 64 positions"):
        session.run(65)
    with pytest.raises(LabError, match="runs alone"):
        session.run(1, then=session)


def test_weights_below_bf16_are_refused(tiny, tmp_path):
    layout = Layout(tiny.in_formats("int8", "bf16"))
    with pytest.raises(
        LabError, match=r"the Triton kernels read bf16, not model tiny int8; leave format= and kv_format= out"
    ):
        TritonSession(layout, torch.zeros(layout.weights_size, dtype=torch.bfloat16), PtxDevice(tmp_path))


def test_triton_that_is_absent_is_one_line(monkeypatch):
    monkeypatch.delitem(sys.modules, f"{triton_arm.__name__}.kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(LabError, match=r"^triton does not import: .*; pip install -e '\.\[triton\]'$"):
        kernels()


@pytest.fixture
def work(tiny, expected, cpu_cache) -> Workload:
    device = PtxDevice(cpu_cache / "kernels", 89, SEED, timeout=60.0)
    config = SimpleNamespace(seed=SEED, device=SimpleNamespace(name="ptx"), ptx=True)
    weights = SimpleNamespace(flat=expected.weights)
    lab = SimpleNamespace(model=tiny, layout=Layout(tiny), packed=weights, config=config, expected=expected)
    lab.reference_device, lab.device = "cpu", device
    return Workload(lab, (PROMPT,), 2)


def test_a_row_says_how_it_was_validated(work, monkeypatch):
    truth = rivals.reference(work)
    for name, validated in {"Triton": "stages", "torch": "logits, cache, ids", "transformers": "ids"}.items():
        row = rivals.attempt(ARMS[name], work, truth)
        assert (row["state"], row["validated"], row["same ids"]) == ("ran", validated, "2 of 2")
    plant, place = PLANTED["one row less"]
    launches = TritonStep._launches
    monkeypatch.setattr(TritonStep, "_launches", lambda step: plant(found := launches(step)) or found)
    row = rivals.attempt(ARMS["Triton"], work, truth)
    assert row["state"].startswith(f"wrong: {place} ")
    assert row.keys() == {"state"}


def test_a_gpu_that_torch_cannot_use_is_one_line(work, monkeypatch):
    monkeypatch.setattr(Workload, "device", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LabError, match="Triton needs torch for CUDA to reach the GPU; make"):
        ARMS["Triton"].run(work)


def test_tiles_are_powers_of_two():
    for tiles in (SMALL, TILES):
        assert all(size & (size - 1) == 0 for size in vars(tiles).values())
