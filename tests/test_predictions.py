"""Predictions of kernels with given counts, chains and constants: cases worked by hand, and published kernels."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from composed import Composed
from sampled import sampled

from common.config.resolve import model_named
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import LAYER, STAGES
from common.record.store import Store
from experiments.prediction import designs, gpus
from experiments.prediction.model import NONE, Kernel, Stage
from experiments.prediction.prediction import predict
from experiments.prediction.predictor import Predictor, Unsupported, as_counts, on_target
from experiments.prediction.published import RATES
from experiments.prediction.sass.chain import Chain, Chains, chains

# 1 us of latency, nothing else costs anything: 1 GHz, 8 bytes a ns for each of 4 SMs.
GPU = gpus.GpuModel(
    key="hand",
    name="Hand",
    arch="sm_80",
    bandwidth_gbps=32,
    read_efficiency=1,
    multiprocessors=4,
    l2_bytes=1 << 20,
    clock_ghz=1,
    latency_ns=1000,
    l2_ns=100,
    barrier_us=2,
    node_us=3,
    launch_us=7,
    exchange_ns=500,
    queue_share=0,
    block_barrier_clocks=1e-9,
    shared_clocks=20,
    shuffle_clocks=20,
    l1_clocks=30,
    special_clocks=20,
    phase_clocks=20,
    operand_clocks=10,
    l1_bytes=1e9,
    port_bytes=1e9,
    power_w=1,
)
# A warp multiplies 4 rows one after the other, each with 8 loads of 8 bytes of a lane.
ROWS = Chain(
    before={"fixed": 10}, turns=4, turn={"issue": 70, "fixed": 130}, first={"l2": 90}, after={"shuffle": 40},
    issued=80, l1_bytes=128, loaded=4 * 8 * 8, flight=8 * 8, hidden=0,
)  # fmt: skip


def kernel(model: Model, names: str = "", chain: Chain = ROWS, **counts: dict[str, int]) -> Kernel:
    """Kernel of the stack `names` with the given counts; every stage has the chain `chain`."""
    found = Chains(dict.fromkeys(STAGES, chain), GPU.latency)
    source = on_target(Composed(tuple(names.split())).source(model), 90)
    return Kernel(source, as_counts(counts), found)


def stage(kernel_: Kernel, name: str, position: int = 1, gpu: gpus.GpuModel = GPU):
    return Stage(kernel_, gpu, position, name).task()


def test_a_cache_in_the_ring_by_hand(tiny):
    """Two blocks copy the entries of a KV head, until several attend to it; expressions name knobs of bulk_ring."""
    stack = kernel(tiny, "joint_heads by_value bulk_ring stream_kv")
    entries = 2 * 2 * tiny.kv_heads * tiny.head_dim  # bytes of a position in a layer
    near, far = (stage(stack, "attention", position) for position in (127, 159))
    assert (near.size, near.total) == (128 * entries * 2 / 4, 128 * entries)
    assert (far.size, far.total) == (160 * entries / 4, 160 * entries)
    assert (near.tile, near.place, near.window, near.ahead) == (16384, 12 * 16384, 4 * 16384, True)
    assert near.exchange == 500
    assert far.exchange == 2 * near.exchange


def test_a_matrix_in_registers_by_hand(tiny):
    """128 rows of 2,048 bytes in qkv of each layer; 8 warps of 4 SMs take 4 each."""
    task = stage(kernel(tiny, qkv={"weights_64bit": tiny.layers * 128 * 2048}), "qkv")
    assert (task.size, task.total) == (32 * 2048, 128 * 2048)
    assert (task.tile, task.place) == (64 * 32, 8 * 64 * 32), "8 loads of 8 bytes of 32 lanes, of 8 warps"
    assert (task.before, task.head) == (10, 90), "the input is awaited beside the weights"
    assert task.rate == pytest.approx(64 * 32 / 20), "80 instructions of a turn, 4 a clock"
    assert task.lag == 200 - 20, "a warp sends the next loads when it has multiplied"
    assert (task.tail, task.exchange, task.ahead) == (180 + 40, 0, False)


def test_a_matrix_in_the_ring_by_hand(tiny):
    """64 rows of down: on 5 SMs one has 13, where 12.8 is the mean; 4 turns of 200 clocks multiply them."""
    found = kernel(tiny, "joint_heads by_value bulk_ring", down={"copied_bulk": tiny.layers * 64 * 320})
    task = stage(found, "down", gpu=replace(GPU, multiprocessors=5))
    assert (task.size, task.total) == (13 * 320, 64 * 320)
    assert (task.before, task.head, task.tail, task.lag) == (10, 90, 40, 0)
    assert task.rate == pytest.approx(13 * 320 / 800)
    whole = 16 * 512 // tiny.intermediate * 2 * tiny.intermediate
    assert (task.tile, task.place, task.window, task.ahead) == (whole, 12 * whole, 4 * whole, True)
    assert stage(found, "down", gpu=replace(GPU, l1_bytes=32)).rate == pytest.approx(
        16 * 320 / (4 * 8 * 32 * 128 / 32)
    ), "8 warps, 32 lanes, 128 bytes each"


def test_bytes_that_l2_keeps_by_hand(tiny):
    """Bytes to keep of all stages, in half of L2."""
    head = {"copied_bulk": 4 << 20, "kept": 1 << 18}
    layers = {"copied_bulk": 4 << 20, "kept": 3 << 18}
    names = "joint_heads by_value bulk_ring hot_l2"
    assert stage(kernel(tiny, names, lm_head=head), "lm_head").kept == 1 << 18
    both = kernel(tiny, names, lm_head=head, qkv=layers)
    assert stage(both, "lm_head").kept == 1 << 17, "1 MB does not fit into 512 KB"
    assert stage(both, "qkv").kept == (3 << 17) / tiny.layers
    assert stage(both, "o_proj", gpu=replace(GPU, l2_bytes=1 << 21)).kept == 0
    assert stage(both, "lm_head", gpu=replace(GPU, l2_bytes=1 << 21)).kept == 1 << 18


@pytest.mark.parametrize(
    ("issued", "l1", "clocks"),
    [(80, 1e9, 20), (160, 1e9, 40), (80, 128, 32 * 128 / 128), (80, 64, 32 * 128 / 64)],
)
def test_what_multiplies_is_the_slower_of_issue_and_l1(tiny, issued, l1, clocks):
    found = kernel(tiny, chain=replace(ROWS, issued=issued), qkv={"weights_64bit": 1 << 15})
    assert stage(found, "qkv", gpu=replace(GPU, l1_bytes=l1)).rate == pytest.approx(64 * 32 / clocks)


def test_clocks_have_the_latencies_of_the_gpu_at_hand(tiny):
    """Walked at 100 clocks of L2 and 20 of a shuffle; instructions and their stalls are clocks on any GPU."""
    found = kernel(tiny, qkv={"weights_64bit": 1 << 15})
    task = stage(found, "qkv", gpu=replace(GPU, l2_ns=200, shuffle_clocks=30))
    assert (task.before, task.head, task.tail) == (10, 180, 180 + 60)
    task = stage(found, "qkv", gpu=replace(GPU, clock_ghz=2))
    assert (task.before, task.head, task.tail) == (5, 90, 90 + 20), "ns of L2 are no clocks"


def test_attention_is_no_faster_than_memory(tiny):
    chain = replace(ROWS, before={"memory": 4000, "fixed": 30})
    assert stage(kernel(tiny, chain=chain), "attention", 7).before == 4030
    slow = replace(GPU, bandwidth_gbps=1e-3)  # 1e-3 bytes a ns
    size = tiny.kv_bytes_per_position / tiny.layers * 8
    assert stage(kernel(tiny, chain=chain), "attention", 7, slow).before == pytest.approx(size / 1e-3)


@pytest.mark.parametrize(
    ("names", "given", "ns"),
    [
        ("", {}, 2000 + 100),  # the release waits for a store to L2
        ("graph", {"how": "graph"}, 3000),
        ("graph", {"how": "launches"}, 7000),
    ],
)
def test_what_follows_a_stage(tiny, names, given, ns):
    source = Composed(tuple(names.split()), given).source(tiny)
    counts = as_counts({} if names else {"o_proj": {"grid_barriers": tiny.layers}})
    assert Stage(Kernel(source, counts, Chains({}, GPU.latency)), GPU, 1, "o_proj").task().exchange == ns


def test_a_launch_that_nobody_has_measured_is_not_predicted(tiny, tmp_path):
    predictor = Predictor(tiny, 256, Store(tmp_path / "records.jsonl"), tmp_path)
    with pytest.raises(Unsupported, match="nobody has measured what a launch with how=pdl costs"):
        predictor.predict(("graph",), {"graph": {"how": "pdl"}}, predictor.gpu("h200"), 1)


def test_a_matrix_that_no_walked_instruction_loads_is_refused(tiny):
    with pytest.raises(LabError, match="no instruction of baseline that is walked loads what qkv needs"):
        stage(kernel(tiny, chain=NONE, qkv={"weights_64bit": 1 << 15}), "qkv")


# Facts of the published kernel, out of its source; its SASS has 8 loads of 64 bits of each row, as the baseline's.
BARRIERS = {"embed": 1} | dict.fromkeys(LAYER, 28) | dict.fromkeys(("final_norm", "lm_head"), 1)


@pytest.fixture(scope="module")
def megaqwen(cpu_cache) -> Callable[[int], Kernel]:
    """A barrier after every stage; the baseline's instructions, at a position."""
    source = Composed(()).source(replace(model_named("qwen3_0_6b"), positions=64))
    rows = {"qkv": 4096 * 1024, "o_proj": 1024 * 2048, "gate_up": 6144 * 1024, "down": 1024 * 3072}
    sizes = {stage: 28 * 2 * size for stage, size in rows.items()} | {"lm_head": 2 * 151936 * 1024}
    counts = as_counts(
        {stage: {"grid_barriers": BARRIERS.get(stage, 0), "weights_64bit": sizes.get(stage, 0)} for stage in STAGES}
    )
    latency = gpus.read("rtx3090").latency

    @cache
    def at(position: int) -> Kernel:
        return Kernel(source, counts, chains(source, "sm_86", 82, position, latency, cpu_cache / "cubins"))

    return at


@pytest.mark.parametrize(
    "figure", sampled([each for each in RATES if each.build == "all"], 2), ids=lambda each: f"@{each.position}"
)
def test_the_published_series_within_a_tenth(figure, megaqwen):
    """Five positions of one kernel: bytes, barriers, and the growth of attention."""
    time = predict(megaqwen(figure.position), gpus.read(figure.gpu), figure.position)
    assert time.rate == pytest.approx(figure.rate, rel=0.1)
    assert time.low <= time.seconds <= time.high


def test_the_published_kernels_of_others_within_an_eighth():
    for design in designs.published():
        for key, us in design.published.items():
            time = design.predict(gpus.read(key))
            assert 1e6 * time.seconds == pytest.approx(us, rel=1 / 8), f"{design.name} on {key}"


def test_an_interval_is_that_of_the_constants_that_are_not_known(megaqwen):
    gpu = gpus.read("rtx3090")
    draws = [one for one, _ in gpu.draws()]
    assert draws[0] == gpu
    assert draws == [one for one, _ in gpus.read("rtx3090").draws()], "the same ones every time"
    for name, (low, high) in gpu.ranges.items():
        values = sorted(getattr(one, name) for one in draws[3:])
        width = (high - low) / gpus.DRAWS
        assert all(low + i * width <= value <= low + (i + 1) * width for i, value in enumerate(values)), name
        assert {getattr(one, name) for one in draws[1:3]} == {low, high}, name
    time = predict(megaqwen(1), gpu, 1)
    assert (time.low, time.high) == time.draws[1:3], "all at their fast ends, all at their slow ends"
    known = replace(gpu, ranges={})
    assert len(set(predict(megaqwen(1), known, 1).draws)) == 1
    assert predict(megaqwen(1), gpu, 1).seconds == predict(megaqwen(1), known, 1).seconds


def test_an_effect_is_that_of_equal_constants(megaqwen):
    """A barrier less a layer, with a range of barriers: the effect is -28 of them, whatever they cost."""
    gpu = gpus.read("rtx3090")
    counts = megaqwen(1).counts.as_dict()
    counts["qk_norm_rope"]["grid_barriers"] = 0
    less = replace(megaqwen(1), counts=as_counts(counts), declared={})
    parent, own = predict(megaqwen(1), gpu, 1), predict(less, gpu, 1)
    effect = own.against(parent)
    assert effect is not None
    assert effect.low < effect.value < effect.high < 0
    for one, (after, before) in zip(gpu.draws(), zip(own.draws, parent.draws, strict=True), strict=True):
        assert before - after == pytest.approx(28e-9 * (1000 * one[0].barrier_us + one[0].l2_ns))
    assert parent.against(parent) is None, "no change is no statement"
