"""Counts of each variant on the PTX device, against values worked by hand from the model's shapes."""

import dataclasses
from collections import Counter
from contextlib import closing
from itertools import product

import pytest
import torch
from composed import Composed
from sampled import sampled

from common.devices.counters import Counts
from common.devices.ptx.device import PtxDevice
from common.model.layout import Layout
from common.model.stages import LAYER_STAGES
from common.model.weights import load

BLOCKS, LAYERS = 8, 2
BARRIERS = 1 + 8 * LAYERS + 2  # after the embedding, eight stages of each layer, the final norm and the head
OUT, MLP = 64 * 128 * 2, 160 * 64 * 2  # bytes of o, and of gate, up or down, of the tiny model


@pytest.fixture
def count(cpu_cache, tiny, seed):
    """count(names, blocks=, position=, tokens=, **knobs): the counts of one run on the tiny model."""

    device = PtxDevice(cpu_cache, seed=seed)

    def run(names: str, blocks: int = BLOCKS, position: int = 0, tokens: int = 1, model=tiny, **given) -> Counts:
        program = device.compile(Composed(tuple(names.split()), given).source(model))
        weights = load("synthetic", model, None, cpu_cache, seed)[2].flat
        history = torch.zeros(Layout(model).cache.shape, dtype=torch.bfloat16)
        with closing(device.session(program, weights, blocks)) as session:
            session.reset([1] * (position + 1), position, history)
            return session.count(tokens)

    return run


def shared_by_matrices(counts: Counts) -> dict[int, int]:
    """Bytes that the stages of matrices load out of shared memory, by the width of a load in bits; without the best
    logits of 7 other warps, 8 bytes each, which a thread of each block compares."""
    stages = ("qkv", "o_proj", "gate_up", "down", "lm_head")
    found = sum((Counter(counts.bytes_by_width("shared", stage)) for stage in stages), Counter())
    return dict(found - Counter({64: BLOCKS * 7 * 8}))


BARRIERS_OF = [
    ("", BARRIERS),
    ("redundant_rmsnorm", BARRIERS - 2 * LAYERS),
    ("head_split", BARRIERS - 2 * LAYERS),
    ("fused_head", BARRIERS - 2),
    ("redundant_rmsnorm head_split fused_head", BARRIERS - 4 * LAYERS - 2),
    ("joint_heads", BARRIERS - LAYERS),
    ("joint_heads folded_norm", BARRIERS - 3 * LAYERS),
    ("joint_heads folded_norm by_value", BARRIERS - 8 * LAYERS),  # the token's stay
    ("joint_heads by_value", BARRIERS - 6 * LAYERS),  # and the ones after a norm by one block
    ("bulk_ring columns", BARRIERS - 2 * LAYERS),
    ("joint_heads by_value bulk_ring columns", BARRIERS - 8 * LAYERS),
    ("joint_heads folded_norm by_value value_token", 0),
    ("joint_heads by_value value_token", 2 * LAYERS),
    ("graph", 0),
    *((names, BARRIERS) for names in ("l2_prefetch", "vec128", "smem_cache", "warp_split", "cp_async", "bulk_ring")),
    *((names, BARRIERS) for names in ("atomic_barrier", "atomic_barrier productive_spin", "multi_step")),
]


@pytest.mark.parametrize(("names", "barriers"), sampled(BARRIERS_OF, 4))
def test_grid_barriers(count, names, barriers):
    assert count(names).total("grid_barriers") == barriers


def test_exchanges_without_a_barrier(count):
    """By value five vectors of a layer, of which `counted_sums` makes one where it is needed; and the token."""
    by_value = {
        "joint_heads by_value": 5 * LAYERS,
        "joint_heads folded_norm by_value counted_sums": 4 * LAYERS,
        "joint_heads folded_norm by_value value_token": 5 * LAYERS + 1,
    }
    assert {names: count(names).total("by_value") for names in by_value} == by_value
    fused = count("fused_head")  # the last block to arrive has the token
    assert (fused.of("lm_head", "counters"), fused.total("counters"), fused.total("by_value")) == (1, 1, 0)


def test_the_baseline_reads_each_weight_once_and_entries_once_a_head(count, tiny):
    position = 9
    counts = count("", position=position)
    assert all(counts.of(stage, "grid_barriers") == LAYERS for stage in LAYER_STAGES)
    norms = 2 * tiny.hidden * (2 * LAYERS + 1)  # by block 0, each element once
    head_norms = LAYERS * (tiny.heads + tiny.kv_heads) * tiny.head_dim * 2
    embedding = 2 * tiny.hidden  # element by element
    assert counts.bytes_by_width("weights") == {64: 2 * tiny.matrix_weights + norms + head_norms, 16: embedding}
    shared = tiny.heads // tiny.kv_heads  # each query head reads its keys and values again
    assert counts.loaded("kv") == shared * tiny.kv_bytes_per_position * (position + 1)
    assert counts.total("stored_kv") == tiny.kv_bytes_per_position


def test_barriers_of_28_layers(count, tiny):
    """As many layers as Qwen3-0.6B has: 227 barriers per token, 56 of them after a norm."""
    deep = dataclasses.replace(tiny, layers=28)
    assert count("", model=deep).total("grid_barriers") == 227
    assert count("redundant_rmsnorm", model=deep).total("grid_barriers") == 227 - 56


def test_split_kv_adds_a_barrier_from_the_second_chunk_on(count):
    barriers = {at: count("split_kv", position=at, chunk=16).total("grid_barriers") for at in (0, 15, 16, 63)}
    assert barriers == {0: BARRIERS, 15: BARRIERS, 16: BARRIERS + LAYERS, 63: BARRIERS + LAYERS}


@pytest.mark.parametrize(("per_launch", "launches"), [(1, 5), (3, 2), (8, 1)])
def test_a_barrier_between_two_tokens_of_one_launch(count, per_launch, launches):
    counts = count("multi_step", tokens=5, steps=per_launch)
    assert counts.total("grid_barriers") == 5 * BARRIERS + (5 - launches)


def test_a_token_by_value_needs_no_atomic_between_its_steps(count):
    counts = count("joint_heads folded_norm by_value value_token", tokens=5)
    assert (counts.total("grid_barriers"), counts.total("atomics")) == (0, 0)


def test_vec128_uses_wide_loads_only(count, tiny):
    """Matrices and norms by 128 bits; head norms, four gains a lane, by 64, and the embedding row by 16."""
    counts = count("vec128", position=9)
    norms = 2 * 64 * (2 * LAYERS + 1)
    wide = 2 * tiny.matrix_weights + norms
    assert counts.bytes_by_width("weights") == {128: wide, 64: LAYERS * 6 * 32 * 2, 16: 2 * 64}
    for stage in ("qkv", "o_proj", "gate_up", "down", "lm_head"):
        assert set(counts.bytes_by_width("weights", stage)) == {128}
    assert set(counts.bytes_by_width("kv")) == {128}
    assert set(count("", position=9).bytes_by_width("kv")) == {64}


@pytest.mark.parametrize("how", sampled(["prefetch", "ldg"], 1))
def test_prefetched_bytes(count, how):
    """4 of 8 blocks have no head: they share the matrices, or each prefetches its budget in lines of 128 bytes."""
    some = {"how": how}
    assert count("l2_prefetch", **some).total("prefetched") == LAYERS * (OUT + 3 * MLP)
    assert count("l2_prefetch", matrices=["o"], **some).total("prefetched") == LAYERS * OUT
    assert count("l2_prefetch", matrices=["up", "down"], **some).total("prefetched") == LAYERS * 2 * MLP
    assert count("l2_prefetch", prefetch_bytes=1000, **some).total("prefetched") == LAYERS * 4 * (1000 // 128 * 128)
    assert count("l2_prefetch", blocks=4, **some).total("prefetched") == 0
    assert count("l2_prefetch").of("attention", "prefetched") == count("l2_prefetch").total("prefetched")


@pytest.mark.parametrize("blocks", [8, 19])
def test_bytes_fetched_while_waiting(count, blocks):
    """A block prefetches the first eight of its rows, if it has any; rows are whole cache lines here."""
    o_rows = down_rows = 64
    qkv, gate, head = (8 * min(blocks, rows // 8) * 64 * 2 for rows in (256, 160, 503))
    o, down = 8 * min(blocks, o_rows // 8) * 128 * 2, 8 * min(blocks, down_rows // 8) * 160 * 2
    counts = count("atomic_barrier productive_spin", blocks=blocks)
    assert counts.total("prefetched") == LAYERS * (qkv + o + 2 * gate + down) + head
    capped = count("atomic_barrier productive_spin", blocks=8, spin_bytes=256)
    assert capped.total("prefetched") == 8 * 256 * (LAYERS * 5 + 1)


def test_cp_async_copies_every_matrix_byte_once(count, tiny):
    counts = count("cp_async")
    assert counts.total("copied_async") == 2 * tiny.matrix_weights
    assert shared_by_matrices(counts) == {64: 2 * tiny.matrix_weights}
    for stage in ("qkv", "o_proj", "gate_up", "down", "lm_head"):
        assert counts.bytes_by_width("weights", stage) == {}


RINGS = ["bulk_ring", "vec128 bulk_ring", "joint_heads folded_norm by_value bulk_ring"]


@pytest.mark.parametrize("names", sampled(RINGS, 1))
def test_a_ring_brings_every_matrix_byte_once_a_token(count, tiny, names):
    shares = {"slots": 2, "kb": 6, "window": 2}
    counts, twice = count(names, blocks=3, **shares), count(f"{names} multi_step", tokens=2, ahead=0)
    sizes = {"qkv": 2 * 256 * 64, "o_proj": OUT, "gate_up": 2 * MLP, "down": MLP, "lm_head": 503 * 64 * 2 / LAYERS}
    for stage, size in sizes.items():
        assert counts.of(stage, "copied_bulk") == LAYERS * size
        assert twice.of(stage, "copied_bulk") == 2 * LAYERS * size
    assert counts.total("copied_bulk") == 2 * tiny.matrix_weights
    plain = count(names.removesuffix("bulk_ring").strip(), blocks=3)
    assert counts.loaded("weights") == plain.loaded("weights") - 2 * tiny.matrix_weights


@pytest.mark.parametrize("blocks", [1, 3, 8])
@pytest.mark.parametrize(
    "names", ["bulk_ring multi_step hot_l2", "joint_heads by_value bulk_ring hot_l2 value_token stream_kv"]
)
def test_l2_is_asked_to_keep_whole_tiles_of_as_many_bytes_as_the_knob_says(count, tiny, names, blocks):
    """1 MB in each of two tokens: 128 tiles of 64 rows of 128 bytes, of the 960 tiles of this head; none of the cache.

    No weight is copied twice.
    """
    model = dataclasses.replace(tiny, vocab=24 * 40 * 64)
    counts = count(names, blocks=blocks, position=9, tokens=2, model=model, mb=1)
    assert counts.of("lm_head", "kept") == counts.total("kept") == 2 << 20
    assert counts.total("copied_bulk") - counts.of("attention", "copied_bulk") == 2 * 2 * model.matrix_weights
    without = count(" ".join(name for name in names.split() if name != "hot_l2"), blocks=blocks)
    assert without.total("kept") == 0 < without.total("copied_bulk")


@pytest.mark.parametrize(("blocks", "rows"), [(1, 448), (8, 441)])
def test_all_of_a_small_head_is_kept_but_for_a_tile(count, blocks, rows):
    """503 rows are 7 whole tiles of 64. Of the tiles of 8 blocks, 62 or 63 rows each, the first one is left out."""
    assert count("bulk_ring hot_l2", blocks=blocks).total("kept") == rows * 128


HEADS = [(1, 3, 3 * 64), (1, 48, 503), (8, 48, 503), (3, 0, 0)]


@pytest.mark.parametrize(("head", "copies"), sampled(product(HEADS, ("async", "bulk")), 2))
def test_the_loader_prefetches_so_many_tiles_of_the_head(count, head, copies):
    """Tiles of 64 rows of 128 bytes, all 8 where the knob says more; one of 62 or 63 rows in each of 8 blocks.

    They are copied as without it.
    """
    blocks, tiles, rows = head
    counts = count("bulk_ring head_prefetch", blocks=blocks, head_tiles=tiles, copies=copies)
    assert counts.total("prefetched") == counts.of("o_proj", "prefetched") == rows * 128
    plain, copied = count("bulk_ring", blocks=blocks, copies=copies), ("copied_bulk", "copied_async")
    assert [counts.total(each) for each in copied] == [plain.total(each) for each in copied]


@pytest.mark.parametrize(
    ("blocks", "chunk", "copies"),
    [(8, 64, "heads"), (3, 64, "kv_heads"), (8, 16, "kv_heads")],
    ids=["a block a head", "heads share a block", "several blocks a head"],
)
def test_earlier_entries_are_copied_once_for_the_heads_of_a_block(count, tiny, blocks, chunk, copies):
    """No entry is loaded out of the cache, and each is loaded once out of the ring for all heads that share a block."""
    position, entry = 37, 2 * 2 * tiny.head_dim
    counts = count("joint_heads by_value bulk_ring stream_kv", blocks=blocks, position=position, chunk=chunk)
    copied = LAYERS * getattr(tiny, copies) * position * entry
    assert counts.of("attention", "copied_bulk") == copied
    assert counts.total("copied_bulk") == 2 * tiny.matrix_weights + copied
    assert counts.loaded("kv") == 0
    own = LAYERS * getattr(tiny, copies) * entry
    assert counts.bytes_by_width("shared", "attention")[128] >= copied + own


def test_a_lane_reads_its_columns_of_the_input_once_however_many_rows_follow(count, tiny):
    """By lanes that have a packet of 8 columns; of 160 columns a lane has 3 packets, the last with 2."""
    blocks, packet = 3, 8 * 4
    counts = count("bulk_ring columns", blocks=blocks)
    columns = {"qkv": 8, "o_proj": 8, "gate_up": 8, "down": 20, "lm_head": 8 // LAYERS}
    embedding = {"o_proj": 4 * 64}  # the block itself has all later rows of the residual stream
    for stage, packets in columns.items():
        loaded = sum(counts.bytes_by_width("activations", stage).values())
        assert loaded == LAYERS * blocks * packets * 32 * packet + embedding.get(stage, 0), stage
    for stage in ("qkv", "gate_up"):  # gains
        assert counts.bytes_by_width("weights", stage) == {128: LAYERS * blocks * 8 * 32 * 16}
    assert counts.total("copied_bulk") == 2 * tiny.matrix_weights


def test_producers_load_every_matrix_byte_once(count, tiny):
    counts, plain = count("warp_split"), count("")
    assert counts.bytes_by_width("weights") == plain.bytes_by_width("weights")
    assert shared_by_matrices(counts) == {64: 2 * tiny.matrix_weights}
    assert shared_by_matrices(count("warp_split", ratio="0:8")) == {}


def test_activations_come_from_shared_memory(count, tiny):
    """Each row of a matrix reads its whole vector; a block reads the vector from global memory once per stage."""
    counts, plain = count("smem_cache"), count("")
    assert shared_by_matrices(counts) == {128: 4 * tiny.matrix_weights}
    inputs = LAYERS * (64 + 128 + 64 + 160) + 64  # qkv, o, gate_up, down; the head
    saved = 4 * tiny.matrix_weights - BLOCKS * 4 * inputs
    assert plain.loaded("activations") - counts.loaded("activations") == saved


def test_the_fused_head_adds_three_atomics(count):
    """Two per block and one of the last block, in place of two barriers with one atomic per block."""
    assert count("fused_head").total("atomics") == count("").total("atomics") - 2 * BLOCKS + 2 * BLOCKS + 1


def test_a_row_takes_five_shuffles_and_a_grid_barrier_two_block_barriers(count, tiny):
    """A warp adds up the sums of its 32 lanes; a block meets before its arrival and after the last one's."""
    counts = count("")
    assert counts.of("down", "shuffles") == 5 * tiny.hidden * LAYERS
    assert counts.of("down", "block_barriers") == 2 * BLOCKS * LAYERS
