"""Evidence under a budget, with steps that only count virtual seconds: begun, left, and resumed."""

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from made_records import shown_run
from virtual_machine import ALONE, CUDA, GPU, ROWS, START, YAML, Machine

from common.config import budget, cli
from common.config.cli import composed
from common.config.device_choice import DeviceChoice
from common.config.resolve import resolve
from common.config.texts import override_text
from common.json_values import to_json
from common.record.store import Store
from experiments.evidence import __main__ as command
from experiments.evidence.execute import Ended
from experiments.run.describe import request_of
from profiles import target

SAME = ("streaming", "ablation", "ladder", "roofline", "energy")
KNOBS = ["products_1", "window_1", "window_3", "ahead_0"]
STACKS = ["ring", "ring_tensor", "persistent", "megaqwen"]
FIRST = ["exchanges", "ceiling", "streaming", *KNOBS, *STACKS, "timeline", "timeline_1024", "ladder"]


@pytest.fixture
def call(tmp_path, monkeypatch) -> Callable[..., tuple[int, Machine]]:
    """call(*overrides, on=machine): one call of the command on a machine with a GPU; exit code and machine.

    Equal words are composed once in a test: a call takes longer for that than for all of its steps.
    """
    compose = cli._composed
    kept = cache(lambda name, arguments, root: compose(name, list(arguments), root))
    monkeypatch.setattr(cli, "_composed", lambda name, words, root: deepcopy(kept(name, tuple(words), root)))
    monkeypatch.setattr(command, "choose_device", lambda name: GPU)
    monkeypatch.setattr(command, "provenance", lambda bus_id: {"gpu": bus_id})
    monkeypatch.setattr(DeviceChoice, "bus_id", "0000:01:00.0")

    def call(*overrides: str, on: Machine | None = None) -> tuple[int, Machine]:
        machine = on or Machine(tmp_path / "r.jsonl")
        monkeypatch.setattr(budget, "clock", lambda: machine.now)
        return command.main([f"results={override_text(machine.results)}", *overrides], machine.execute), machine

    return call


def rows(machine: Machine) -> list[Any]:
    return sorted(tuple(row["asked"].values())[:2] for row in Store(machine.results).records() if row["kind"] == "row")


def states(machine: Machine) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in Store(machine.results).records() if row["kind"] == "step"]


def test_without_a_budget_every_step_is_done_once_in_order(call):
    code, machine = call()
    assert code == 0
    assert [step for step, _ in machine.begun] == list(ROWS)
    assert len(rows(machine)) == sum(ROWS.values())
    assert call(on=machine)[0] == 0
    assert len(machine.begun) == len(ROWS), "a second call has nothing to do"


def test_a_plan_has_the_steps_with_their_seconds_and_runs_nothing(call, capsys):
    code, machine = call("plan=true")
    _, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (code, machine.begun) == (0, [])
    assert [(line[0], line[-1]) for line in lines] == [(name, f"{step.seconds:.0f}") for name, step in YAML.items()]


def test_a_call_ends_within_its_budget_and_says_what_is_left(call, capsys):
    code, machine = call("budget_s=540")
    assert code == 3
    assert machine.now <= 540
    out = capsys.readouterr().out
    assert "quality (about" in out.splitlines()[-2]
    assert f"a copy of {machine.results}" in out.splitlines()[-1]


def test_calls_cut_at_any_byte_and_resumed_elsewhere_give_the_rows_of_one_call(call, tmp_path, seed):
    rng = random.Random(seed)
    _, whole = call(on=Machine(tmp_path / "whole.jsonl"))
    results = tmp_path / "cut.jsonl"
    for number in range(9):
        code, machine = call("budget_s=540", on=Machine(results))
        assert machine.now <= 540, f"seed {seed}"
        if number < 2:  # killed: the file ends anywhere in what this call wrote, and goes to another machine
            kept = results.read_bytes()
            results = tmp_path / f"cut{number}.jsonl"
            results.write_bytes(kept[: rng.randrange(len(kept) // 2, len(kept))])
        elif code == 0:
            break
    assert code == 0
    assert rows(machine) == rows(whole), f"seed {seed}"
    assert {name for name, state in states(machine) if state == "done"} == set(ROWS)


def test_the_first_call_holds_what_decides_the_next_kernel(call):
    """If steps take what conf/evidence.yaml assumes."""
    _, machine = call("budget_s=540")
    done = [name for name, state in states(machine) if state == "done"]
    assert done[: len(FIRST)] == FIRST
    assert list(YAML)[-1] == "rivals"


def test_six_calls_of_nine_minutes_hold_all_of_it(call, tmp_path):
    """If they take what conf/evidence.yaml assumes."""
    codes = []
    for _ in range(6):
        codes.append(call("budget_s=540", on=Machine(tmp_path / "r.jsonl"))[0])
    assert codes[-1] == 0, codes


def test_a_step_that_hangs_costs_its_limit_once_in_a_call_and_is_tried_last(call, tmp_path):
    results = tmp_path / "r.jsonl"
    for number in range(3):
        machine = Machine(results)
        machine.hangs = {"exchanges", "ceiling", "products_1"}
        code, _ = call("budget_s=540", on=machine)
        assert code == 3
        begun = [step for step, _ in machine.begun]
        hung = [step for step in begun if step in machine.hangs]
        assert len(hung) == len(set(hung)), "once in a call"
        if number:
            assert not hung or begun[-len(hung) :] == hung, "last"
        else:
            limits = dict(machine.begun)
            assert limits["exchanges"] == limits["ceiling"] == limits["products_1"] == CUDA.hang_s
            kept = [row for row in Store(results).records() if row.get("state") == "failed"]
            assert [(row["name"], row["code"]) for row in kept] == [(name, None) for name in hung]
    machine = Machine(results)
    assert call(on=machine)[0] == 0
    assert sorted(rows(machine)) == sorted((step, row) for step, number in ROWS.items() for row in range(number))


def test_a_row_that_hangs_in_a_step_lets_the_others_go_on(call, tmp_path, monkeypatch):
    machine = Machine(tmp_path / "r.jsonl")
    with monkeypatch.context() as hangs:
        hangs.setattr(machine, "seconds_of", lambda step, row: 1e9 if (step, row) == ("ablation", 2) else 10)
        assert call(on=machine)[0] == 1
    assert [step for step, _ in machine.begun].count("ablation") == 2, "it made rows, and was begun again"
    assert [name for name, state in states(machine) if state == "failed"] == ["ablation"]
    assert machine.begun[-1][0] != "ablation"


def test_a_step_begins_only_if_its_first_row_fits_and_a_slower_machine_ends_too(call, tmp_path):
    """On a machine that takes nearly twice as long."""
    results = tmp_path / "r.jsonl"
    for _ in range(30):
        machine = Machine(results, slow=1.9)
        code, _ = call("budget_s=540", on=machine)
        assert machine.now <= 540
        for step, left in machine.begun:
            assert left >= (YAML[step].seconds if step in ALONE else START + YAML[step].row_s), step
        if code == 0:
            break
    assert code == 0
    assert len(rows(machine)) == sum(ROWS.values())


@pytest.mark.parametrize(("left", "begun"), [(52, 0), (53, 1)])
def test_a_step_is_not_begun_for_no_row(left, begun, call):
    """It starts within 5 s, its first row takes 45, and 3 more are kept for its end; the command takes 2 itself."""
    _, machine = call(f"budget_s={left + 2}", "only=[streaming]")
    assert len(machine.begun) == begun


def test_a_step_that_fails_ends_nothing_but_itself_and_is_tried_again(call, tmp_path):
    machine = Machine(tmp_path / "r.jsonl")
    machine.fail = {"rivals": 2, "ceiling": -11}
    assert call(on=machine)[0] == 1
    assert [step for step, _ in machine.begun] == list(ROWS)
    assert [name for name, state in states(machine) if state == "failed"] == ["ceiling", "rivals"]
    kept = [row["report"] for row in Store(machine.results).records() if row.get("state") == "failed"]
    assert kept == ["it failed\n"] * 2
    machine.fail = {}
    assert call(on=machine)[0] == 0
    assert [step for step, _ in machine.begun[len(ROWS) :]] == ["ceiling", "rivals"]


def test_a_stack_whose_worker_was_killed_leaves_its_step_to_do(call, tmp_path):
    class Losing(Machine):
        """The worker of one stack of the ladder is ended by another process, when it begins."""

        def rows(self, step, argv):
            ended = super().rows(step, argv)
            if step == "ladder" and ("ladder", "cut") not in states(self):
                row = shown_run(status="INTERRUPTED")
                Store(self.results).append({name: row[name] for name in row.keys() - {"id", "schema", "time"}})
                return Ended(1, "")
            return ended

    code, machine = call(on=Losing(tmp_path / "r.jsonl"))
    assert (code, ("ladder", "cut") in states(machine)) == (0, True)
    assert ("ladder", "done") in states(machine)


def test_other_code_other_seed_or_another_gpu_is_asked_anew(call, monkeypatch):
    _, machine = call("only=[energy]")
    call("only=[energy]", "seed=2", on=machine)
    monkeypatch.setattr(command, "choose_device", lambda name: DeviceChoice("cuda", "Another GPU"))
    call("only=[energy]", on=machine)
    monkeypatch.setattr("experiments.evidence.plan.code_sha", lambda: "other")
    call("only=[energy]", on=machine)
    assert len(machine.begun) == 4


@pytest.mark.parametrize("device", ["cuda", "ptx"])
def test_every_step_is_a_command_that_is_accepted(device, call, tmp_path, monkeypatch):
    """Composed and checked as the step's process does it, but for the GPU that is not here; with keys of some steps."""
    monkeypatch.setattr(command, "choose_device", lambda name: GPU if device == "cuda" else DeviceChoice("ptx", ""))
    composed_ = []

    class Recorded(Machine):
        def execute(self, argv: Sequence[str], seconds: float) -> Ended:
            if argv[0] != "pytest":
                here = [word.replace("device=cuda", "device=ptx") for word in argv[1:]]
                config = composed({"experiments": "config"}.get(argv[0], argv[0]), here)
                (resolve if argv[0] == "experiments" else target.read)(config)
                composed_.append(argv[0])
            return Ended(0, "")

    args = 'args=["blocks=4","timing.rounds=9","+validate=quick","timeout_s=50"]'
    assert call("budget_s=5400", args, on=Recorded(tmp_path / "r.jsonl"))[0] == 0
    assert len(composed_) >= 8
    kept = Store(tmp_path / "r.jsonl").records()
    assert {row["provenance"]["gpu"] for row in kept} == {"0000:01:00.0"}, "the GPU that does the work"


def test_steps_that_time_all_stacks_ask_the_same(call, tmp_path):
    """Letter for letter, or a later step would repeat an earlier one's measurements."""
    asked_ = {}

    class Recorded(Machine):
        def execute(self, argv: Sequence[str], seconds: float) -> Ended:
            if self.name(argv) in SAME:
                here = resolve(composed("config", [word.replace("device=cuda", "device=ptx") for word in argv[1:]]))
                asked_[self.name(argv)] = (to_json(request_of(here)), here.model)
            return Ended(0, "")

    call(on=Recorded(tmp_path / "r.jsonl"))
    same = [asked_[name] for name in SAME]
    assert all(each == same[0] for each in same)


def test_steps_get_a_store_whose_path_has_any_characters(call, tmp_path):
    place, given = tmp_path / "d'\u00e9t\u00e9, (1)/r.jsonl", set[str]()

    class Asked(Machine):
        def execute(self, argv: Sequence[str], seconds: float) -> Ended:
            given.update(word for word in argv if word.startswith("results="))
            return Ended(0, "")

    assert call(on=Asked(place))[0] == 0
    assert [composed("config", [word]).results for word in given] == [str(place)]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("only=[foo]", "only=foo names no step; known here: exchanges, ceiling,"),
        ("budget_s=-1", "budget_s=-1 is not a positive number"),
        ("cuda.steps=[1]", "cuda.steps is no list of steps"),
        ("cuda.steps=[{name: a, run: experiments, args: [], seconds: x}]", "seconds=x is not a positive number"),
        ("results=/dev/null/r.jsonl", "/dev/null/r.jsonl"),
        ('args=["model=tinny"]', "unknown model 'tinny'; did you mean 'tiny'?"),
        ('args=["threds=512"]', "unknown key 'threds'; did you mean 'threads'?"),
        ('args=["variant=vec128"]', "args: variant=vec128: variant= is the plan's own"),
        ('args=["window=1"]', "args: window=1: window= is the plan's own"),
        ('args=["+device=cuda"]', "args: +device=cuda: device= is the plan's own"),
        ('args=["--help"]', "args: --help: --help= is the plan's own, or no key"),
    ],
)
def test_a_mistake_is_refused_in_one_line(call, override, message, capsys):
    code, machine = call(override)
    error = capsys.readouterr().err
    assert (code, machine.begun, error.count("\n")) == (2, [], 1)
    assert message in error
