"""Predictions of kernels with given counts, loops and constants: cases worked by hand, and published kernels."""

from dataclasses import replace

import pytest
from composed import Composed

from common.config.resolve import model_named
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import DEFINITIONS, LAYER, STAGES
from experiments.prediction import designs, gpus
from experiments.prediction.loops import Loop
from experiments.prediction.model import Kernel, Stage, positions_of_a_warp
from experiments.prediction.prediction import predict
from experiments.prediction.predictor import as_counts, on_target
from experiments.prediction.published import RATES

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
    issue=1e9,
    chain_clocks=1e-9,
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
WIDE = Loop(instructions=64, through_l1=2048, loads=4, width=16, phases=1)
NARROW = Loop(instructions=70, through_l1=2048, loads=8, width=8, phases=1)
TURN = Loop(instructions=80, through_l1=0, loads=1, width=8, phases=2)


def kernel(model: Model, names: str = "", loop: Loop = NARROW, **counts: dict[str, int]) -> Kernel:
    """Kernel of the stack `names` with the given counts; every loop over weights is `loop`."""
    matrices = {stage: loop for stage, of in DEFINITIONS.items() if of.columns}
    source = on_target(Composed(tuple(names.split())).source(model), 90)
    return Kernel(source, as_counts(counts), 4, matrices | {"attention": TURN})


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


def test_a_matrix_by_hand(tiny):
    """128 rows of 128 bytes in qkv of each layer; 8 warps of 4 SMs take 32 at once, so each SM has 32 rows, 4 KB."""
    task = stage(kernel(tiny, qkv={"weights_64bit": tiny.layers * 128 * 128}), "qkv")
    assert (task.size, task.total) == (4096, 16384)
    assert (task.tile, task.place) == (8 * 8 * 32, 8 * 8 * 8 * 32), "8 loads of 8 bytes of 32 lanes, of 8 warps"
    assert task.head == 100, "the vector comes from L2, beside the weights"
    assert (task.before, task.exchange, task.ahead) == (0, 0, False)


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


def test_the_busiest_sm_has_the_rows_that_are_left_over(tiny):
    """64 rows of down: 32 at once, so two rounds; of 5 SMs one has two rounds, 16 rows, where 12.8 is the mean."""
    counts = {"down": {"weights_64bit": tiny.layers * 64 * 320}}
    assert stage(kernel(tiny, **counts), "down").size == 16 * 320
    task = stage(kernel(tiny, **counts), "down", gpu=replace(GPU, multiprocessors=5))
    assert (task.size, task.total) == (16 * 320, 64 * 320)


@pytest.mark.parametrize(
    ("issue", "l1", "loop", "rate"),
    [
        (2, 1e9, NARROW, 1024 / 35),  # 70 instructions a KB, 2 a clock
        (1e9, 64, NARROW, 1024 / 32),  # 2,048 bytes through L1, 64 a clock
        (1e9, 64, WIDE, 1024 / 64),  # and twice as many where lanes are 32 bytes apart
        (2, 64, NARROW, 1024 / 35),
    ],
)
def test_what_multiplies_is_the_slower_of_issue_and_l1(tiny, issue, l1, loop, rate):
    found = kernel(tiny, loop=loop, qkv={"weights_64bit": 1 << 15})
    assert stage(found, "qkv", gpu=replace(GPU, issue=issue, l1_bytes=l1)).rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("names", "position", "trips"),
    [
        ("", 1, 2),  # one turn of 8 warps with a position each: a key, then a value
        ("", 7, 2),
        ("", 8, 4),
        ("", 63, 16),
        ("split_kv", 63, 16),  # one chunk
        ("split_kv", 64, 16 * 2),  # 4 heads, two chunks of 64: 8 tasks on 4 SMs, two each
        ("head_split", 7, 2 * 2),  # 2 blocks have 2 heads each
    ],
)
def test_turns_of_the_attention_by_hand(tiny, names, position, trips):
    """head_dim 32: eight 8-byte packets a head, so four groups of lanes; a model of 128 has one group."""
    model = replace(tiny, head_dim=128)
    found = kernel(model, names)
    extra = 100 if names == "split_kv" and position == 64 else 0  # the merge reads what other blocks stored
    assert stage(found, "attention", position, replace(GPU, bandwidth_gbps=1e9)).before == pytest.approx(
        100 + extra + 1000 * trips
    )
    slow = replace(GPU, bandwidth_gbps=1e-3)  # 1e-3 bytes a ns
    size = model.kv_bytes_per_position / model.layers * (position + 1)
    assert stage(found, "attention", position, slow).before == pytest.approx(100 + extra + size / 1e-3, rel=1e-3)


def test_positions_of_a_warp():
    assert [positions_of_a_warp(128, each) for each in (8, 16)] == [1, 2]
    assert [positions_of_a_warp(32, each) for each in (8, 16)] == [4, 8]
    assert positions_of_a_warp(136, 8) == 1


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
    assert Stage(Kernel(source, counts, 4, {}), GPU, 1, "o_proj").task().exchange == ns


def test_work_of_a_planned_step_is_declared(tiny):
    """The ring takes the place of registers, and an exchange by value that of a barrier."""
    (ladder,) = designs.ladders()
    found = kernel(tiny, qkv={"weights_64bit": tiny.layers * 128 * 128, "grid_barriers": tiny.layers})
    assert stage(found, "qkv").exchange == 2100
    planned = {}
    for step, more in ladder.steps.items():
        planned = {**planned, step: more}
        task = stage(replace(found, steps=planned, declared={}), "qkv")
        if step == "by_value":
            assert (task.exchange, task.head, task.place) == (500, 0, 8 * 8 * 8 * 32)
        if step == "ring and columns":
            assert (task.place, task.tile, task.ahead, task.size) == (196608, 12288, False, 32 * 128)
        if step == "ahead":
            assert task.ahead
    assert (task.window, task.ahead) == (53248, True)


def test_a_stage_without_a_recognized_loop_is_refused(tiny):
    with pytest.raises(LabError, match="no loop in the SASS of baseline loads what qkv needs"):
        stage(replace(kernel(tiny, qkv={"weights_64bit": 1 << 15}), loops={}), "qkv")


# Facts of the published kernel, out of its source and of nvcc 13.0's SASS of it for sm_86, not of this lab's kernels.
BARRIERS = {"embed": 1} | dict.fromkeys(LAYER, 28) | dict.fromkeys(("final_norm", "lm_head"), 1)


@pytest.fixture(scope="module")
def megaqwen() -> Kernel:
    """8 loads of 64 bits under way of each row, 16 of gate and up; a barrier after every stage."""
    model = model_named("qwen3_0_6b")
    rows = {
        "qkv": 4096 * 1024,
        "o_proj": 1024 * 2048,
        "gate_up": 6144 * 1024,
        "down": 1024 * 3072,
    }
    sizes = {stage: 28 * 2 * size for stage, size in rows.items()} | {"lm_head": 2 * 151936 * 1024}
    counts = {
        stage: {"grid_barriers": BARRIERS.get(stage, 0), "weights_64bit": sizes.get(stage, 0)} for stage in STAGES
    }
    loops = {stage: Loop(76, 2048, 16 if stage == "gate_up" else 8, 8, 1) for stage in sizes}
    return Kernel(Composed(()).source(model), as_counts(counts), 82, loops | {"attention": TURN})


@pytest.mark.parametrize(
    "figure", [each for each in RATES if each.build == "all"], ids=lambda each: f"@{each.position}"
)
def test_the_published_series_within_a_tenth(figure, megaqwen):
    """Five positions of one kernel: bytes, barriers, and the growth of attention."""
    time = predict(megaqwen, gpus.read(figure.gpu), figure.position)
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
    time = predict(megaqwen, gpu, 1)
    assert (time.low, time.high) == time.draws[1:3], "all at their fast ends, all at their slow ends"
    known = replace(gpu, ranges={})
    assert len(set(predict(megaqwen, known, 1).draws)) == 1
    assert predict(megaqwen, gpu, 1).seconds == predict(megaqwen, known, 1).seconds


def test_an_effect_is_that_of_equal_constants(megaqwen):
    """A barrier less a layer, with a range of barriers: the effect is -28 of them, whatever they cost."""
    gpu = gpus.read("rtx3090")
    counts = megaqwen.counts.as_dict()
    counts["qk_norm_rope"]["grid_barriers"] = 0
    less = replace(megaqwen, counts=as_counts(counts), declared={})
    parent, own = predict(megaqwen, gpu, 1), predict(less, gpu, 1)
    effect = own.against(parent)
    assert effect is not None
    assert effect.low < effect.value < effect.high < 0
    for one, (after, before) in zip(gpu.draws(), zip(own.draws, parent.draws, strict=True), strict=True):
        assert before - after == pytest.approx(28e-9 * (1000 * one[0].barrier_us + one[0].l2_ns))
    assert parent.against(parent) is None, "no change is no statement"
