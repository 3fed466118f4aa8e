"""Evidence under a budget, with steps that only count virtual seconds: what is begun, what is left, how it goes on."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from made_records import shown_run
from virtual_machine import ALONE, GPU, ROWS, START, YAML, Machine, row_seconds

from common.config import budget
from common.config.cli import composed
from common.config.device_choice import DeviceChoice
from common.config.resolve import resolve
from common.record.json_values import to_json
from common.record.store import Store
from experiments.evidence import __main__ as command
from experiments.evidence.execute import Ended
from experiments.run.describe import asked
from profiles import target


@pytest.fixture
def call(tmp_path, monkeypatch) -> Callable[..., tuple[int, Machine]]:
    """call(*overrides, on=machine): one call of the command on a machine with a GPU; exit code and machine."""
    monkeypatch.setattr(command, "choose_device", lambda name: GPU)
    monkeypatch.setattr(command, "provenance", dict)

    def call(*overrides: str, on: Machine | None = None) -> tuple[int, Machine]:
        machine = on or Machine(tmp_path / "r.jsonl")
        monkeypatch.setattr(budget, "clock", lambda: machine.now)
        return command.main([f"results={machine.results}", *overrides], machine.execute), machine

    return call


def rows(machine: Machine) -> list[Any]:
    return sorted(tuple(row["asked"].values()) for row in Store(machine.results).records() if row["kind"] == "row")


def states(machine: Machine) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in Store(machine.results).records() if row["kind"] == "step"]


def test_without_a_budget_every_step_is_done_once_in_order(call):
    code, machine = call("report=false")
    assert code == 0
    assert [step for step, _ in machine.begun] == list(ROWS)
    assert len(rows(machine)) == sum(ROWS.values())
    assert call("report=false", on=machine)[0] == 0
    assert len(machine.begun) == len(ROWS), "a second call has nothing to do"


def test_a_call_ends_within_its_budget_and_says_what_is_left(call, capsys):
    code, machine = call("budget_s=540")
    assert code == 3
    assert machine.now <= 540
    out = capsys.readouterr().out
    assert "factorial (about" in out.splitlines()[-2]
    assert f"a copy of {machine.results}" in out.splitlines()[-1]


def test_calls_cut_at_any_byte_and_resumed_elsewhere_give_the_rows_of_one_call(call, tmp_path, seed):
    rng = random.Random(seed)
    _, whole = call("report=false", on=Machine(tmp_path / "whole.jsonl"))
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


def test_three_calls_of_nine_minutes_hold_all_of_it(call, tmp_path):
    """If they take what conf/evidence.yaml assumes. The first has the time of every variant and named stack."""
    codes = []
    for _ in range(3):
        code, machine = call("budget_s=540", on=Machine(tmp_path / "r.jsonl"))
        codes.append(code)
        assert len([step for step, _ in rows(machine) if step == "ablation"]) >= ROWS["validation"]
    assert codes[-1] == 0, codes


def test_nothing_begins_that_would_not_end(call, tmp_path):
    """On a machine three times slower, which the tests show: there they take 450 s."""
    results = tmp_path / "r.jsonl"
    for _ in range(20):
        machine = Machine(results, slow=3.0)
        code, _ = call("budget_s=540", on=machine)
        for step, left in machine.begun[:-1]:
            assert step in ALONE or left >= (START + row_seconds(step)) * 3, step
        if code == 0:
            break
    assert code == 0
    assert len(rows(machine)) == sum(ROWS.values())


def test_a_step_is_tried_where_others_were_so_slow_that_by_them_no_budget_would_hold_it(call):
    only, (_, machine) = "only=[barriers,validation]", call("plan=true")
    machine.slow = 14.0
    assert YAML["validation"].least_s * machine.slow > 540 > YAML["barriers"].seconds * machine.slow
    for _ in range(9):
        machine.now = 0.0
        if call(only, "budget_s=540", "report=false", on=machine)[0] == 0:
            break
    assert len(rows(machine)) == ROWS["barriers"] + ROWS["validation"]


def test_a_row_that_was_stopped_is_not_taken_for_the_start_of_its_step(call, tmp_path, monkeypatch):
    machine = Machine(tmp_path / "r.jsonl")
    with monkeypatch.context() as hangs:
        hangs.setattr(machine, "seconds_of", lambda step, row: 1000 if row else 20)
        assert call("budget_s=420", "only=[validation]", on=machine)[0] == 3
    assert len(rows(machine)) == 1
    assert call("budget_s=300", "only=[validation]", "report=false", on=machine)[0] == 0
    assert len(rows(machine)) == ROWS["validation"]


def test_a_step_that_was_stopped_before_its_first_row_gets_more_time_or_none(call, tmp_path):
    machine = Machine(tmp_path / "r.jsonl", slow=40.0)  # 200 s until the first row, and 288 s of it
    call("budget_s=300", "only=[validation]", on=machine)
    assert len(machine.begun) == 1
    call("budget_s=300", "only=[validation]", on=machine)
    assert len(machine.begun) == 1
    call("budget_s=540", "only=[validation]", on=machine)
    assert len(machine.begun) == 2


def test_a_step_that_fails_ends_nothing_but_itself_and_is_tried_last(call):
    _, machine = call("plan=true")
    machine.fail = {"rivals": 2, "ceiling": -11}
    assert call("report=false", on=machine)[0] == 1
    assert [step for step, _ in machine.begun] == list(ROWS)
    assert [name for name, state in states(machine) if state == "failed"] == ["ceiling", "rivals"]
    kept = [row["report"] for row in Store(machine.results).records() if row.get("state") == "failed"]
    assert kept == ["it failed\n"] * 2
    machine.fail = {}
    assert call("report=false", on=machine)[0] == 0
    assert [step for step, _ in machine.begun[len(ROWS) :]] == ["ceiling", "rivals"]


def test_a_stack_whose_worker_was_killed_leaves_its_step_to_do(call, tmp_path):
    class Killed(Machine):
        """The worker of one stack of the validation is ended by another process, when it begins."""

        def rows(self, step, argv):
            ended = super().rows(step, argv)
            if step == "validation" and ("validation", "cut") not in states(self):
                row = shown_run(status="INTERRUPTED")
                Store(self.results).append({name: row[name] for name in row.keys() - {"id", "schema", "time"}})
                return Ended(1, "")
            return ended

    code, machine = call("report=false", on=Killed(tmp_path / "r.jsonl"))
    assert (code, ("validation", "cut") in states(machine)) == (0, True)
    assert ("validation", "done") in states(machine)


def test_other_code_other_seed_or_another_gpu_is_asked_anew(call, monkeypatch):
    _, machine = call("report=false", "only=[energy]")
    call("report=false", "only=[energy]", "seed=2", on=machine)
    monkeypatch.setattr(command, "choose_device", lambda name: DeviceChoice("cuda", "Another GPU"))
    call("report=false", "only=[energy]", on=machine)
    monkeypatch.setattr("experiments.evidence.plan.code_sha", lambda: "other")
    call("report=false", "only=[energy]", on=machine)
    assert len(machine.begun) == 4


def test_the_fastest_by_the_records_are_profiled_and_followed_over_the_positions(call, tmp_path):
    from made_records import timed

    machine = Machine(tmp_path / "r.jsonl")
    store = Store(machine.results)

    def took(name: str, us: int) -> None:
        row = timed(name, [name])
        row["latencies"][0]["seconds"] = {"median": us / 1e6}
        filled = {"verdict": None, "generation": None, "reason": "", "key": "0" * 16, "seed": 1}
        filled |= {"weights": {"sha": "", "source": ""}}
        store.append({key: value for key, value in (row | filled).items() if key not in ("id", "time")})

    for name, us in (("vec128", 400), ("baseline", 700), ("fused_head", 500), ("graph", 600), ("vec128 + graph", 1)):
        took(name, us)
    seen = []
    keep = machine.execute
    machine.execute = lambda argv, seconds: seen.append(" ".join(argv)) or keep(argv, seconds)  # type: ignore[method-assign]
    call("report=false", "only=[positions,ncu]", on=machine)
    assert "options.stacks=[vec128,fused_head,graph]" in seen[0]
    assert "variant=vec128 " in seen[1]
    took("baseline", 399)
    assert call("report=false", "only=[positions,ncu]", on=machine)[0] == 0
    assert len(seen) == 2, "done for those that were the fastest then"


@pytest.mark.parametrize("device", ["cuda", "host"])
def test_every_step_is_a_command_that_is_accepted(device, call, tmp_path, monkeypatch):
    """Composed and checked as the step's process does it, but for the GPU that is not here."""
    monkeypatch.setattr(command, "choose_device", lambda name: GPU if device == "cuda" else DeviceChoice("host", ""))
    composed_ = []

    class Recorded(Machine):
        def execute(self, argv: Sequence[str], seconds: float) -> Ended:
            if argv[0] != "pytest":
                here = [word.replace("device=cuda", "device=host") for word in argv[1:]]
                config = composed({"experiments": "config"}.get(argv[0], argv[0]), here)
                (resolve if argv[0] == "experiments" else target.request)(config)
                composed_.append(argv[0])
            return Ended(0, "")

    assert call("report=false", "budget_s=5400", on=Recorded(tmp_path / "r.jsonl"))[0] == 0
    assert len(composed_) >= 12


def test_steps_that_time_all_stacks_ask_the_same(call, tmp_path):
    """Letter for letter, or a later step would measure again what an earlier one has."""
    asked_ = {}

    class Recorded(Machine):
        def execute(self, argv: Sequence[str], seconds: float) -> Ended:
            if argv[0] == "experiments":
                here = resolve(composed("config", [word.replace("device=cuda", "device=host") for word in argv[1:]]))
                asked_[self.name(argv)] = (to_json(asked(here)), here.model)
            return Ended(0, "")

    call("report=false", on=Recorded(tmp_path / "r.jsonl"))
    same = [asked_[name] for name in ("ceiling", "ablation", "ladder", "roofline", "ratios", "factorial", "energy")]
    assert all(each == same[0] for each in same)
    untimed, model = asked_["validation"]
    assert untimed == same[0][0] | {"timing": None}
    assert model == same[0][1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("only=[foo]", "only=foo names no step; known here: tests, ceiling,"),
        ("budget_s=-1", "budget_s=-1 is not a positive number"),
        ("cuda.steps=[1]", "cuda.steps is no list of steps"),
        ("cuda.steps=[{name: a, run: experiments, args: [], seconds: x}]", "seconds=x is not a positive number"),
        ("results=/dev/null/r.jsonl", "/dev/null/r.jsonl"),
    ],
)
def test_a_mistake_is_refused_in_one_line(call, override, message, capsys):
    code, machine = call(override)
    error = capsys.readouterr().err
    assert (code, machine.begun, error.count("\n")) == (2, [], 1)
    assert message in error
