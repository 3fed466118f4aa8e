"""NVRTC output of variants that multiply or attend out of a ring: the instructions of their ideas."""

import re

import pytest
from composed import Composed
from cubins import QWEN
from sampled import sampled

from common.compile.nvrtc import compile_ptx
from common.compile.sass import sass
from common.config.resolve import model_named
from common.stacks.catalog import read_catalog

RINGS = ("bulk_ring", "vec128 bulk_ring", "joint_heads folded_norm by_value bulk_ring")
HEAD_GAINS = 4  # loads by 64 bits of a lane, for a query's and a key's norm, whatever the variants
REGISTERS = 168  # per thread: 9 warps, which are counted as 12, have 65,536
MARKED = (("bulk_ring",), ("joint_heads", "by_value", "bulk_ring", "stream_kv"))  # stacks with copies that hot_l2 marks


@pytest.mark.parametrize("names", sampled(RINGS, 1))
def test_a_ring_is_filled_by_bulk_copies_alone(nvrtc, names):
    """A copy for each matrix of the five products; what is still loaded of weights are gains, and the embedding."""
    (ring,) = nvrtc.resources(Composed(tuple(names.split())).source(QWEN), "decode", ("sm_90",))
    (plain,) = nvrtc.resources(Composed(tuple(names.split()[:-1])).source(QWEN), "decode", ("sm_90",))
    assert ring.count("UBLKCP") == 6
    assert ring.count("SYNCS", "PHASECHK", "TRYWAIT") > 0 < ring.count("SYNCS", "ARRIVE")
    assert plain.count("UBLKCP") == plain.count("SYNCS") == 0
    for width, kept in (("64", HEAD_GAINS), ("128", 0)):
        loads, before = (one.count("LDG", width, "CONSTANT") - kept for one in (ring, plain))
        assert 0 <= loads < max(1, before / 3)
    assert ring.count("LDS") > plain.count("LDS")


def test_columns_come_out_of_the_ring_by_128_bits_into_registers_that_last(nvrtc):
    """Each product reads weights only: its input is in registers."""
    names = ("joint_heads", "by_value", "bulk_ring", "columns")
    (own,) = nvrtc.resources(Composed(names).source(QWEN), "decode", ("sm_90",))
    (rows,) = nvrtc.resources(Composed(names[:-1]).source(QWEN), "decode", ("sm_90",))
    assert (own.spill_bytes, own.stack, own.local) == (0, 0, 0)
    assert own.registers <= REGISTERS
    assert own.count("LDS", "128") / own.count("FFMA") < rows.count("LDS", "128") / rows.count("FFMA")
    assert own.count("LDS", "64") < rows.count("LDS", "64")
    assert own.count("UBLKCP") == 6


def test_tensor_rows_multiply_128_weights_by_an_instruction(nvrtc):
    """Products of eight rows, or of four or two where a slot has no more; only these multiply out of the ring."""
    names = ("joint_heads", "by_value", "bulk_ring", "columns", "tensor_rows")
    (own,) = nvrtc.resources(Composed(names).source(QWEN), "decode", ("sm_90",))
    (lanes,) = nvrtc.resources(Composed(names[:-1]).source(QWEN), "decode", ("sm_90",))
    assert (own.spill_bytes, own.stack, own.local) == (0, 0, 0)
    assert own.registers <= REGISTERS
    warps, rows = 8, {QWEN.hidden: 8, QWEN.heads * QWEN.head_dim: 4, QWEN.intermediate: 2}  # by elements of a row
    inputs = [QWEN.hidden] * 3 + [QWEN.heads * QWEN.head_dim, QWEN.intermediate]  # qkv, gate and up, and the head
    (once,) = nvrtc.resources(Composed(names, {"products": 1}).source(QWEN), "decode", ("sm_90",))
    assert once.count("HMMA") == sum(rows[k] * k // warps // 128 for k in inputs)
    assert own.count("HMMA") == 2 * once.count("HMMA")
    assert own.count("FFMA") < lanes.count("FFMA") / 2


def test_the_slots_chosen_for_the_widest_shape_fit_an_sm(nvrtc):
    """227 KB: what the block keeps beside the ring grows with both widths of the model."""
    names = read_catalog().stacks["streaming"].variants
    (own,) = nvrtc.resources(Composed(names).source(model_named("qwen3_8b").in_formats("int8")), "decode", ("sm_90",))
    assert 8 * 16 * 1024 < own.shared <= 227 * 1024


def test_tensor_rows_load_weights_before_the_input_arrives(nvrtc):
    """In each stage of a layer packets for all instructions of the first products, two each, come before any poll.

    Before the polls of gate_up and down stand, too, those that the loop over the products of the stage before loads.
    """
    source = Composed(("joint_heads", "by_value", "bulk_ring", "columns", "tensor_rows")).source(QWEN)
    (cubin,) = nvrtc.cubins(source, ["sm_90"]).values()
    listing = sass(cubin, cache_dir=nvrtc.cache)
    order = re.findall(r"LDS\.128|LDG\.E\.128\.STRONG|HMMA", listing)
    text = "".join({"LDS.128": "w", "HMMA": "H"}.get(each, "p") for each in order)
    stages = [(w.count("w"), len(h)) for w, h in re.findall(r"(w+)p[wp]*(H+)", text)]
    assert stages[:4] == [(8, 16), (8, 16), (8 + 8, 16), (8 + 6, 12)], text  # the head's follow


def test_scores_of_eight_positions_by_tensor_cores(nvrtc):
    """128 elements of keys by an instruction: for one head and for two, of a tile and of the token itself."""
    names = ("joint_heads", "by_value", "bulk_ring", "stream_kv", "tensor_scores")
    (own,) = nvrtc.resources(Composed(names).source(QWEN), "decode", ("sm_90",))
    (lanes,) = nvrtc.resources(Composed(names[:-1]).source(QWEN), "decode", ("sm_90",))
    assert (own.spill_bytes, own.stack, own.local) == (0, 0, 0)
    assert own.count("HMMA") == 4 * 8 * QWEN.head_dim // 128
    assert own.count("SHFL") < lanes.count("SHFL")


def test_keys_and_values_come_out_of_the_ring_by_128_bits(nvrtc):
    """Two copies more, of keys and of values; no load of the cache is left, and a head's parts need no atomic."""
    names = ("joint_heads", "by_value", "bulk_ring", "stream_kv")
    (own,) = nvrtc.resources(Composed(names).source(QWEN), "decode", ("sm_90",))
    (loads,) = nvrtc.resources(Composed(names[:-1]).source(QWEN), "decode", ("sm_90",))
    assert (own.spill_bytes, own.stack, own.local) == (0, 0, 0)
    assert own.count("UBLKCP") == loads.count("UBLKCP") + 2
    others = [each.count("LDG", "64", "CONSTANT") + each.count("LDG", "64", "STRONG") for each in (own, loads)]
    assert own.count("LDG", "64") - others[0] == 0 < loads.count("LDG", "64") - others[1]
    assert own.count("ATOMG") == loads.count("ATOMG")


@pytest.mark.parametrize("names", sampled(MARKED, 1), ids="+".join)
def test_two_policies_for_as_many_copies_as_before(names):
    """Some copies tell L2 to keep their lines with the variant in the stack, and none without it."""
    found = {}
    for variants in (names, (*names, "hot_l2")):
        source = Composed(variants).source(QWEN)
        ptx = compile_ptx(source.text, "compute_90", source.name)
        policies = set(re.findall(r"createpolicy\.fractional\.L2::(\w+)\.b64 %\w+, 1\.0;", ptx))
        found[variants] = policies, ptx.count("cp.async.bulk.")
    (once, copies), (both, same) = found.values()
    assert (once, both) == ({"evict_first"}, {"evict_first", "evict_last"})
    assert copies == same
