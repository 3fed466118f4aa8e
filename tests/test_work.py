"""Work of variants: expressions, and predictions worked out by hand."""

import pytest
from composed import Composed

from common.errors import LabError
from common.stacks.work import evaluate, find, read_work
from experiments.prediction.counting import table
from experiments.prediction.gpus import GpuModel
from experiments.prediction.model import predict

FAST = 1e15  # GB/s: the memory is never the limit
GPU = GpuModel("hand", "Hand", FAST, 1.0, 80, 1 << 20, latency_ns=1000, barrier_us=2, node_us=3, launch_us=1, power_w=1)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("a + 2 * b", 8),
        ("(a + 2) * b", 12),
        ("b - a * b // 4", 2),
        ("a if b - 3 else b", 3),
        ("a if b else 0", 2),
    ],
)
def test_expressions(expression, value):
    assert evaluate(expression, {"a": 2, "b": 3}) == value


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"load_byte": {"all": 16}}, "work.load_byte"),
        ({"load_bytes": 16}, "by stage"),
        ({"load_bytes": {"mlp": 16}}, "name a stage"),
        ({"load_bytes": {"all": "chunks"}}, "names chunks; known: chunk, hidden"),
        ({"load_bytes": {"all": "16.0"}}, "whole numbers"),
        ({"load_bytes": {"all": "a b"}}, "whole numbers"),
        ({"load_bytes": {"all": ""}}, "whole numbers"),
        ({"load_bytes": {"all": "__import__('os').getpid()"}}, "whole numbers"),
        ({"load_bytes": {"all": "True"}}, "whole numbers"),
        ({"load_bytes": {"all": "hidden ** 9"}}, "whole numbers"),
        ({"load_bytes": {"all": "1 // 0"}}, "divides by 0"),
    ],
)
def test_work_that_is_refused(work, said):
    with pytest.raises(LabError, match=r"work\.") as error:
        read_work(work, ["chunk"])
    assert said in str(error.value)


def test_the_narrowest_group_counts():
    by_stage = {"all": "1", "matrices": "2", "qkv": "3"}
    assert [find(by_stage, stage) for stage in ("embed", "down", "qkv")] == ["1", "2", "3"]
    assert find({"matrices": "2"}, "attention") is None


@pytest.mark.parametrize(
    ("composed", "rounds"),
    [
        # 1,024 loads of 8 bytes in qkv, whose rows have 64 columns: a lane has 128 / (32 * 8), so one, under way.
        (Composed(()), 4),  # 256 threads
        (Composed(("warp_split",), {"ratio": "2:6"}), 4),  # 64 threads, 4 loads each
        (Composed(("warp_split",), {"ratio": "1:7"}), 8),
        (Composed(("warp_split",), {"ratio": "0:8"}), 4),  # as the baseline
        (Composed(("vec128",)), 4),  # the counts here are of 8 bytes, and one load is still under way
    ],
    ids=str,
)
def test_rounds_of_loads_by_hand(tiny, composed, rounds):
    counts = table({"qkv": {"weights_64bit": tiny.layers * 8192}})
    time = predict(composed.source(tiny), counts, GPU, position=1, blocks=1)
    assert time.stages["qkv"] == pytest.approx(tiny.layers * (rounds + 1) * 1e-6)


@pytest.mark.parametrize(
    ("names", "given", "rounds"),
    [
        ("cp_async", {"stages": 4, "tile": 2}, 1),  # 512 copies of 16 bytes are 1,024 of 8; 256 threads, 8 under way
        ("cp_async", {"stages": 2, "tile": 1}, 2),
        ("vec128 cp_async", {"stages": 2, "tile": 1}, 1),  # 512 copies, 2 under way
    ],
)
def test_rounds_of_copies_by_hand(tiny, names, given, rounds):
    counts = table({"qkv": {"copied_async": tiny.layers * 8192}})
    time = predict(Composed(tuple(names.split()), given).source(tiny), counts, GPU, position=1, blocks=1)
    assert time.stages["qkv"] == pytest.approx(tiny.layers * (rounds + 1) * 1e-6)


@pytest.mark.parametrize(
    ("names", "stage", "rounds"),
    [
        ("", "attention", 8),  # 8,192 loads by 4 heads of 256 threads
        ("split_kv", "attention", 4),  # position 64 is in the second chunk of 64: 8 blocks
        ("head_split", "attention", 16),  # 2 KV heads
        ("head_split", "qkv", 16),
        ("", "qkv", 2),  # all 20 blocks: 8,192 / 5,120
    ],
)
def test_blocks_at_work_by_hand(tiny, names, stage, rounds):
    loads = {"attention": {"kv_64bit": 8192 * 8 * 2 * 2 // 65}, "qkv": {"weights_64bit": 8192 * 8 * 2}}
    time = predict(Composed(tuple(names.split())).source(tiny), table({stage: loads[stage]}), GPU, 64, blocks=20)
    assert time.stages[stage] == pytest.approx(tiny.layers * (rounds + 1) * 1e-6, rel=1e-3)


def test_rows_of_a_fused_head_by_hand(tiny):
    """4 rows at once: 1,024 loads by 256 threads with 4 under way."""
    counts = table({"lm_head": {"weights_64bit": 8192}})
    time = predict(Composed(("fused_head",), {"rows_per_warp": 4}).source(tiny), counts, GPU, 1, blocks=1)
    assert time.stages["lm_head"] == pytest.approx(2e-6, rel=1e-3)
