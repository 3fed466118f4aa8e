"""Mistakes in Python: a LabError of one line, as on the command line; tests/hostile has generated ones."""

import pytest

from common.config.resolve import model_named
from common.devices.counters import Counts
from common.model.layout import Layout
from common.stacks.catalog import read_catalog
from experiments import Lab, LabError
from experiments.generation.engine import Engine
from experiments.generation.request import Request

COUNTED, TINY = Counts({}), Layout(model_named("tiny"))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda lab: lab.stack("vec128").measure(), "device=ptx has no GPU time to measure; "),
        (lambda lab: lab.stack("vec128").record(), "vec128 has not been validated; "),
        (lambda lab: lab.stack("vec127"), "unknown variant 'vec127'; did you mean 'vec128'"),
        (lambda lab: lab.stack("all"), f"all stands for {len(read_catalog().variants)} stacks; "),
        (lambda lab: lab.stack(["vec128", "vec128"]), "names vec128 twice"),
        (lambda lab: lab.stack("vec128", ratio="2:6"), "vec128 has no knob ratio; "),
        (lambda lab: lab.stack("vec128", ration="2:6"), "unknown knob 'ration'; did you mean 'ratio'"),
        (lambda lab: lab.stack("warp_split", ratio="2:5"), "ratio=2:5 is not P:C of 8 warps"),
        (lambda lab: lab.stack("vec128").timeline(64), "position=64 is not in 0..63; "),
        (lambda lab: lab.stack("vec128").timeline(True), "position=True is not in 0..63; "),
        (lambda lab: lab.stack("vec128").timeline("1"), "position='1' is not in 0..63; "),
        (lambda lab: lab.stack(None), "None names no stack; give a name, or a list: "),
        (lambda lab: lab.stack(["vec128", 5]), "['vec128', 5] names no stack; "),
        (lambda lab: COUNTED.total("grid_bariers"), "unknown count 'grid_bariers'; did you mean 'grid_barriers'"),
        (lambda lab: COUNTED.of("qkw", "shuffles"), "unknown stage 'qkw'; did you mean 'qkv'"),
        (lambda lab: COUNTED.bytes_by_width("weight"), "unknown kind of memory 'weight'; did you mean 'weights'"),
        (lambda lab: TINY.initial_state([0] * 66, 0, 1), "66 token ids were given, to decode position 0 of 64; "),
        (lambda lab: TINY.initial_state([0], 1, 1), "1 token ids were given, to decode position 1 of 64; "),
        (lambda lab: Engine(lab, "vec128"), "'vec128' is no stack; give lab.stack("),
        (lambda lab: Request("abc", 3).check(TINY.model), "ids='abc' is of another type; give ids"),
        (lambda lab: Request((1,), "3").check(TINY.model), "max_tokens='3' is of another type; "),
        (lambda lab: Request((1,), 3, stop_strings="end").check(TINY.model), "stop_strings='end' is of another type; "),
        (lambda lab: Request((1,), 3, stop_ids=5).check(TINY.model), "stop_ids=5 is of another type; "),
        (lambda lab: Request((1,), 3, stop_strings=("",)).check(TINY.model), "give texts that are not empty"),
        (lambda lab: Request((1.5,), 3).check(TINY.model), "token id 1.5 is not in 0..502; "),
        (lambda lab: COUNTED.loaded([]), "unknown kind of memory '[]'; known: "),
    ],
)
def test_a_mistake_is_one_line(tmp_path, ask, said):
    keys = {"model": "tiny", "device": "ptx", "results": tmp_path / "records.jsonl", "cache": tmp_path}
    with pytest.raises(LabError) as found:
        ask(Lab(**keys))
    assert said in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("overrides", "keys", "said"),
    [
        ((), {"threads": 100}, "threads=100 is not a multiple of 32; "),
        ((), {"seed": {}}, "{} is no value of a key; "),
        ((), {"model": 5}, "unknown model '5'; known: "),
        ((), {"device": None}, "unknown device 'null'; known: auto, cuda, ptx"),
        ((), {"experiment": "counts"}, "experiment= has no effect on a Lab; "),
        ((), {"budget_s": 9}, "budget_s= has no effect on a Lab; "),
        ((5,), {}, "5 is no override; "),
        (("model=tiny,odd",), {}, "Ambiguous value for argument 'model=tiny,odd'; "),
    ],
)
def test_a_mistake_in_the_configuration_is_the_line_of_the_command_line(overrides, keys, said):
    with pytest.raises(LabError) as found:
        Lab("device=ptx", *overrides, **keys)
    assert said in str(found.value)
    assert "\n" not in str(found.value)
