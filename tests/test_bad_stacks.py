"""Impossible stacks and knobs: refused before anything is compiled, in one line with the remedy."""

import random

import pytest

from common.compile.source import build
from common.devices.cuda import CudaDevice
from common.errors import LabError, Refused
from common.model.shapes import Model
from common.stacks.catalog import read_catalog
from common.stacks.stack import check_stack, choose_stacks
from experiments.__main__ import main
from tests.strength.soak.alarms import random_stack


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["variant=warp_split", "ratio=8:0"], ["ratio=8:0 is not P:C of 8 warps", "P + C = 8", "C >= 1"]),
        (["variant=warp_split", "ratio=3:4"], ["ratio=3:4 is not P:C of 8 warps", "P + C = 8"]),
        (["variant=warp_split", "ratio=2:6", "threads=512"], ["ratio=2:6 is not P:C of 16 warps", "P + C = 16"]),
        (["variant=warp_split", "ratio=126"], ["ratio=126 is not P:C", 'in a yaml in quotes: "2:6"']),
        (["variant=vec128", "ratio=2:6"], ["vec128 has no knob ratio", "variants that take it: warp_split"]),
        (["stack=[vec128,cp_async]", "ratio=2:6"], ["no knob ratio", "variants that take it: warp_split"]),
        (["variant=cp_async", "stages=5"], ["cp_async: stages=5", "2..4"]),
        (["variant=cp_async", "stages=1"], ["cp_async: stages=1", "2..4"]),
        (["variant=cp_async", "stages=true"], ["stages=True is not a whole number"]),
        (["variant=cp_async", "stages=two"], ["stages=two is not a whole number"]),
        (["variant=vec128", "l1=some"], ["l1=some is unknown", "default | no_allocate"]),
        (
            ["variant=l2_prefetch", "matrices=[o,qkv]"],
            ["matrices=[o,qkv] does not know qkv", "any of [o,gate,up,down]"],
        ),
        (["variant=l2_prefetch", "matrices=[o,o]"], ["matrices=[o,o] names one twice"]),
        (["stack=[warp_split,cp_async]"], ["warp_split and cp_async exclude each other"]),
        (["stack=[vec128,vec128]"], ["names vec128 twice", "name each variant once"]),
        (["stack=[vec128,baseline]"], ["baseline in the middle"]),
        (["variant=productive_spin", "stack=[productive_spin]"], ["both stack= and variant= are given"]),
        (
            ["stack=[productive_spin]"],
            ["productive_spin needs atomic_barrier", "stack=[atomic_barrier,productive_spin]"],
        ),
        (["stack=[vec128,tensor_rows]"], ["needs bulk_ring", "stack=[vec128,bulk_ring,columns,tensor_rows]"]),
        (
            ["stack=[joint_heads,value_token,by_value]"],
            ["value_token stands outside by_value", "stack=[joint_heads,by_value,value_token]"],
        ),
        (
            ["stack=[tensor_rows,bulk_ring,columns]"],
            ["tensor_rows stands outside bulk_ring", "stack=[bulk_ring,tensor_rows,columns]"],
        ),
        (["stack=[vec182]"], ["unknown variant 'vec182'", "did you mean 'vec128'?"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and "=" in value[0] else "",
)
def test_refused_in_one_line(argv, message, capsys, tmp_path):
    results = tmp_path / "records.jsonl"
    assert main([*argv, "device=ptx", "model=tiny", f"results={results}", f"cache={tmp_path / 'cache'}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert all(part in printed.err for part in message), printed.err
    assert not results.exists()


def test_the_parent_of_a_listed_stack_is_the_longest_legal_one_without_its_last(seed):
    catalog, rng = read_catalog(), random.Random(seed)
    (stack,) = choose_stacks(catalog, "", ["bulk_ring", "joint_heads", "stream_kv", "by_value"], {}, 256)
    assert stack.parent == ("bulk_ring", "joint_heads")
    for names in (random_stack(rng, catalog, 256).variants for _ in range(100)):
        (stack,) = choose_stacks(catalog, "", names, {}, 256)
        assert check_stack(stack.parent, catalog) == stack.parent
        for more in set(names[:-1]) - set(stack.parent):
            with pytest.raises(LabError, match="needs"):
                check_stack([name for name in names[:-1] if name in (*stack.parent, more)], catalog)


def test_exclusions_are_mutual():
    """For either order of the two, and for either yaml that has the exclusion."""
    pairs = [(name, other) for name, variant in read_catalog().variants.items() for other in variant.excludes]
    assert pairs
    for name, other in pairs:
        for stack in ((name, other), (other, name)):
            with pytest.raises(LabError, match=f"{name} and {other} exclude|{other} and {name} exclude"):
                check_stack(stack, read_catalog())


def test_a_block_of_more_threads_than_a_gpu_allows_is_refused(tiny):
    """1,024 that compute and a loader warp."""
    streaming = choose_stacks(read_catalog(), "streaming", None, {}, 1024)[0]
    with pytest.raises(Refused, match=r"stream_kv needs 1056 threads a block, .* allows 1024; lower threads"):
        build([read_catalog().variants[name] for name in streaming.variants], tiny, 1024, streaming.knobs)


def test_a_gpu_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(CudaDevice, "arch", 75)
    device = object.__new__(CudaDevice)  # without a GPU, which the refusal does not need
    model = Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)
    source = build([read_catalog().variants["cp_async"]], model, knobs={"cp_async": {"stages": 2, "tile": 1}})
    with pytest.raises(
        Refused,
        match=r"cp_async needs sm_80 and this GPU is sm_75, without asynchronous .*; remove the variant from the "
        r"stack, or use a newer GPU",
    ):
        device.compile(source)
