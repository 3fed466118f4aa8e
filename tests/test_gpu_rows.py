"""Rows on a GPU, by what they do on the stand-in: compiled ahead, one at a time, nothing twice, no wait counted."""

import io
import tempfile
import time
from collections import Counter
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace

import pytest

from common.config.device_choice import DeviceChoice
from common.config.section import Section
from common.validate.trials import TRIALS
from experiments import generate
from experiments.experiment import Experiment
from experiments.generation.engine import Engine
from experiments.run import pool, steps
from experiments.run.setup import Setup
from experiments.run.worker import answer
from experiments.suite import find
from experiments.tables.progress import Progress, Quiet
from experiments.tables.result_table import MEASURED, ResultTable, record_result
from profiles import target

pytestmark = pytest.mark.cpu
SHORT = {"timing.rounds": 8, "timing.max_rounds": 8, "timing.steps": 1, "timing.warmup": 1, "timing.tokens": 1}
PARTS = {"compile", "inspect", "wait", "validate", "reference", "trials", "measure"}


@pytest.fixture
def setup(cupy, configured, cpu_cache, tmp_path, monkeypatch):
    """The setup of two stacks on the stand-in; its model is larger than those of trials, of which there are two."""
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    monkeypatch.setattr(steps, "chosen", lambda amount: [each for each in TRIALS if each.name in ("twins", "ties")])
    config = configured(
        "stack=[vec128]",
        "model=tiny",
        "model.vocab=8192",
        *(f"{key}={value}" for key, value in SHORT.items()),
        "timing.positions=[1]",
        "blocks=3",
        "archs=[]",
        f"cache={cpu_cache}",
        f"results={tmp_path}/r.jsonl",
    )
    return Setup(replace(config, device=DeviceChoice("cuda", "the stand-in"), ptx=None), Quiet())


def test_a_row_compiles_before_it_takes_the_gpu_and_does_nothing_twice(setup, cupy, monkeypatch):
    compiled, uploaded = list[tuple[str, bool]](), Counter[int]()
    asarray, module = cupy.asarray, cupy.RawModule

    def count(array, **options):
        uploaded[array.nbytes] += 1
        return asarray(array, **options)

    def note(code, **options):
        if "struct Kernel :" in code:  # a stack's code, unlike the small texts of timing and comparison
            compiled.append((code, setup._exclusive))
        return module(code=code, **options)

    monkeypatch.setattr(cupy, "asarray", count)
    monkeypatch.setattr(cupy, "RawModule", note)
    found = []
    for name in ("vec128", "redundant_rmsnorm"):
        found.append(answer(setup, {"stack": setup.choose(name, {}), "seconds": 600.0}))
    assert [each["status"] for each in found] == ["PASSED", "PASSED"]
    # Where the second leaves the same entries in the cache, it needs no reference of its own.
    assert [each["seconds"].keys() | {"reference"} for each in found] == [PARTS, PARTS]
    assert not any(exclusive for _, exclusive in compiled)
    assert max(Counter(text for text, _ in compiled).values()) == 1
    assert len(compiled) == 6  # two stacks and their parent, for the model and for the trials', which is one
    assert uploaded[2 * setup.layout.weights_size] == 1


def test_one_at_a_time_uses_a_gpu_and_the_other_says_that_it_waits(setup, tmp_path, monkeypatch):
    """Whatever their caches and TMPDIR, and whoever made the lock: it takes no right to write."""
    monkeypatch.setattr("experiments.run.setup.LOCKS", tmp_path)
    said, order = io.StringIO(), list[str]()
    other = Setup(replace(setup.config, cache=tmp_path / "another"), Progress(said))

    def use() -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "another"))
        with other.exclusive_gpu():
            order.append("other")

    with setup.exclusive_gpu(), setup.exclusive_gpu():
        thread = Thread(target=use)
        thread.start()
        while not said.getvalue() and thread.is_alive():
            time.sleep(0.01)
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert (said.getvalue(), order) == ("waits for the GPU\n", ["first", "other"])
    (lock,) = tmp_path.glob("megakernel-lab-*.lock")
    assert lock.stat().st_mode & 0o777 == 0o444


def test_a_row_that_an_experiment_measures_itself_has_the_gpu_alone(setup):
    experiment, alone = Experiment(setup.config, Quiet()), list[bool]()
    assert experiment.row("a probe", lambda: alone.append(experiment._exclusive) or {"us": 1.0}) == {"us": 1.0}
    assert alone == [True]


def test_a_row_that_only_compiles_leaves_the_gpu_to_others(setup):
    config, used = replace(setup.config, archs=("sm_90",), options=Section({"variants": []})), list[bool]()
    experiment = Experiment(config, Quiet())
    experiment.exclusive_gpu = lambda: used.append(True)
    assert (len(find("sass")(experiment).rows), used) == (1, [])


def test_what_is_not_validated_or_timed_has_the_gpu_alone_too(setup, monkeypatch):
    """Idle power, a timeline, and what a profiler sees."""
    setup, alone = Experiment(replace(setup.config, options=Section({"seconds": 2})), Quiet(), trace=True), list[bool]()
    sample = lambda *_: alone.append(setup._exclusive) or [(0, 9), (1, 9)]  # noqa: E731
    for place in ("experiments.suite.energy._sample", "common.devices.cuda.CudaSession.run"):
        monkeypatch.setattr(place, sample)
    monkeypatch.setattr("experiments.suite.energy.SETTLE", 0)
    monkeypatch.setattr(steps, "read", lambda *_: None)
    setup.measure = lambda stacks: [{"latencies": ()}]
    assert find("energy")(setup).rows == [{"variant": "idle", "average W": 9, "peak W": 9}]
    steps.LabStack(setup, setup.choose("baseline", {})).timeline()
    target.decode(steps.LabStack(setup, setup.choose("baseline", {})), 1, 2)
    assert alone == [True] * 6


def test_a_command_that_generates_has_the_gpu_alone(setup, monkeypatch):
    alone, decode = list[bool](), Engine._decode
    monkeypatch.setattr(Engine, "_decode", lambda own, *more: alone.append(own.setup._exclusive) or decode(own, *more))
    words = ["prompt_ids=[1]", "max_tokens=1", "device=cuda", "model=tiny", "variant=baseline", "blocks=3"]
    places = [f"cache={setup.config.cache}", f"results={setup.config.results}"]
    assert (generate.main([*words, *places]), alone) == (0, [True])


def test_records_name_the_gpu_that_the_work_used_and_not_the_first_of_nvml(setup, monkeypatch):
    from standin_gpu import device
    from standin_gpu.libraries import FUNCTIONS, NOT_FOUND

    monkeypatch.setitem(FUNCTIONS, "nvmlDeviceGetHandleByIndex_v2", lambda *arguments: NOT_FOUND)  # another GPU
    Experiment(setup.config, Quiet()).row("a probe", lambda: {"us": 1.0})
    record_result(ResultTable("counts", "?", [{"us": 1.0}], MEASURED), setup.store, {}, setup.config.device.bus_id)
    steps.LabStack(setup, setup.choose("vec128", {})).append({"source_sha": "a"})
    names = [row["provenance"]["gpu"]["name"] for row in setup.store.records()]
    assert names == 3 * [device.NAME.decode()]


def test_a_wait_for_the_gpu_is_not_in_the_limit_of_a_job(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: now[0]))
    worker = SimpleNamespace(job=0, step="ready", deadline=float("inf"), left=10.0)
    shown, workers = list[tuple[int, str, str]](), pool.Pool(SimpleNamespace(timeout_s=10.0), "", [])

    def event(at: float, *content: str) -> float:
        now[0] = at
        assert list(workers._handle(worker, *content, lambda *given: shown.append(given))) == []
        return worker.deadline

    assert event(5, "begin", "compile a") == 15
    assert event(6, "begin", "inspect a") == 15
    assert event(9, "wait", "waits for the GPU") == float("inf")
    assert event(1000, "begin", "validate a") == 1006
    assert event(1003, "begin", "measure a") == 1006
    assert shown[2] == (0, "detail", "waits for the GPU")
