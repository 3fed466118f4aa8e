"""NVRTC output of every variant and named stack: no spills, and the instructions of its idea.

An old or a newer arch, and for spills all of them; `experiment=sass` compiles for all.
"""

import random
import re
from itertools import product

import pytest
from composed import CATALOG, NAMED, STACKS, VARIANTS, Composed
from cubins import QWEN, fitting
from sampled import sampled

from common.compile.nvrtc import ARCHS, compile_cubin, compile_ptx
from common.compile.sass import sass
from common.errors import CompileError
from common.model.stages import STAGES

KERNELS = [f"stage_{stage}" for stage in STAGES]
BASELINE = Composed(())
WIDE = ("vec128", "redundant_rmsnorm vec128 atomic_barrier productive_spin fused_head multi_step")
GAINS = (  # stack, what follows loads of gains (A: a barrier, L: polls, F: a product), their bits
    ("vec128 folded_norm", "AAAFF", 64),
    ("vec128 joint_heads folded_norm by_value", "ALLLL", 64),
    ("joint_heads by_value bulk_ring columns", "LL", 128),
)
SHARED, OPT_IN, REGISTERS = 48 << 10, 227 << 10, 65536  # per block; per block that asks for it; per multiprocessor


def no_spills(nvrtc, source, archs) -> None:
    for kernel in KERNELS if source.by_stage else ["decode"]:
        for found in nvrtc.resources(source, kernel, archs):
            assert (found.spill_bytes, found.stack, found.local) == (0, 0, 0), (found.arch, kernel)
            assert found.shared <= OPT_IN
            assert found.registers * source.launched_threads * source.blocks_per_sm <= REGISTERS, (found.arch, kernel)


@pytest.mark.parametrize(("composed", "arch"), sampled(product([*VARIANTS, *NAMED], ARCHS), 2), ids=str)
def test_no_arch_spills(nvrtc, composed, arch):
    no_spills(nvrtc, composed.source(QWEN), [arch])


@pytest.mark.parametrize("composed", sampled([*VARIANTS, *NAMED], 2), ids=str)
def test_the_tiny_model_does_not_spill(nvrtc, tiny, composed, seed):
    no_spills(nvrtc, composed.source(tiny), random.Random(seed).sample(ARCHS, 1))


@pytest.mark.parametrize("composed", sampled(STACKS[-2:], 1), ids=str)
def test_shared_memory_is_what_the_struct_takes(nvrtc, composed, cpu_cache):
    """Static, or beyond 48 KB dynamic."""
    source = composed.source(QWEN)
    (found,) = nvrtc.resources(source, "decode", ("sm_90",))
    assert found.shared > SHARED
    (static,) = nvrtc.resources(BASELINE.source(QWEN), "decode", ("sm_90",))
    assert 0 < static.shared <= SHARED
    checked = f"{source.text}static_assert(sizeof(Kernel::Shared) == {found.shared});\n"
    assert compile_ptx(checked, "sm_90", cache_dir=cpu_cache)


@pytest.mark.parametrize("name", sampled(CATALOG.variants, 2))
def test_the_minimum_arch_is_correct(tiny, name):
    """A variant with min_arch 75 compiles for sm_75; one with a higher min_arch does not."""
    source = Composed((*CATALOG.variants[name].parent, name) if name != "baseline" else ()).source(tiny)
    if source.min_arch <= 75:
        assert compile_cubin(source.text, "sm_75", source.name)
    else:
        with pytest.raises(CompileError, match="sm_75"):
            compile_cubin(source.text, "sm_75", source.name)


def test_vec128_loads_weights_only_by_128_bits(nvrtc):
    for wide, plain in zip(nvrtc.decode("vec128"), nvrtc.decode(""), strict=True):
        assert wide.count("LDG", "128", "CONSTANT") > 0
        heads = wide.count("LDG", "64", "CONSTANT")
        assert heads == 4  # halves of the gains of two head norms
        assert plain.count("LDG", "64", "CONSTANT") > heads
        assert plain.count("LDG", "128", "CONSTANT") == 0


@pytest.mark.parametrize("names", sampled(WIDE, 1))
def test_no_allocate_marks_the_matrix_loads(nvrtc, names):
    for marked, plain in zip(nvrtc.decode(names, l1="no_allocate"), nvrtc.decode(names), strict=True):
        assert plain.count("LDG", "NA") == 0
        assert marked.count("LDG", "NA", "128", "CONSTANT") == marked.count("LDG", "NA") > 0


def test_prefetch_is_an_instruction_and_ldg_a_load(nvrtc):
    """Productive spin prefetches while it waits."""
    spins, waits = (nvrtc.decode(names) for names in ("atomic_barrier productive_spin", "atomic_barrier"))
    for spin, wait in zip(spins, waits, strict=True):
        assert spin.count("CCTL", "PF2") > 0 == wait.count("CCTL", "PF2")
    prefetches, loads, plain = nvrtc.decode("l2_prefetch"), nvrtc.decode("l2_prefetch", how="ldg"), nvrtc.decode("")
    for prefetch, load, none in zip(prefetches, loads, plain, strict=True):
        assert prefetch.count("CCTL", "PF2") > 0
        assert prefetch.count("LDG", "STRONG") == none.count("LDG", "STRONG")
        assert load.count("LDG", "STRONG", "SYS") > 0 == none.count("LDG", "STRONG", "SYS")
        assert load.count("CCTL", "PF2") == none.count("CCTL", "PF2") == 0


def test_cp_async_copies_without_registers(nvrtc):
    """One kind of copy for each of the two widths; no matrix weight is loaded into a register."""
    for narrow, wide in zip(nvrtc.decode("cp_async"), nvrtc.decode("vec128 cp_async"), strict=True):
        assert narrow.count("LDGSTS", "64") == narrow.count("LDGSTS") > 0
        assert wide.count("LDGSTS", "BYPASS", "128") == wide.count("LDGSTS") > 0
        assert wide.count("LDGDEPBAR") > 0
        assert wide.registers < nvrtc.decode("vec128")[0].registers


def test_warps_synchronize_by_named_barriers(nvrtc):
    """bar.arrive on one side, bar.sync on the other, with a barrier number above 0 and all 256 threads."""
    source = Composed(("warp_split",)).source(QWEN)
    for arch, cubin in nvrtc.cubins(source, fitting(source)).items():
        barriers = re.findall(r"BAR\.(ARV|SYNC)\S* (\S+), 0x100", sass(cubin, cache_dir=nvrtc.cache))
        assert {kind for kind, _ in barriers} == {"ARV", "SYNC"}, arch
        assert all(number != "0x0" for _, number in barriers), arch
    assert all(found.count("BAR", "ARV") == 0 for found in nvrtc.decode("warp_split", ratio="0:8"))


def test_atomic_barrier_has_release_semantics_and_no_cooperative_launch(nvrtc):
    assert Composed(("atomic_barrier",)).source(QWEN).launch == "plain"
    assert BASELINE.source(QWEN).launch == "cooperative"
    for own, plain in zip(nvrtc.decode("atomic_barrier"), nvrtc.decode(""), strict=True):
        assert own.count("ST", "STRONG", "GPU") + own.count("STG", "STRONG", "GPU") > 0
        assert own.count("ATOMG", "ADD", "STRONG", "GPU") == plain.count("ATOMG", "ADD", "STRONG", "GPU") > 0
        assert own.count("MEMBAR") > plain.count("MEMBAR")


@pytest.mark.parametrize("names", sampled(["", "atomic_barrier", "split_kv vec128"], 1), ids=str)
def test_waits_are_not_unrolled(nvrtc, names):
    """One pause for each place that waits, and each waits for what an atomic addition counts."""
    for found in nvrtc.decode(names):
        assert 0 < found.count("NANOSLEEP") <= found.count("ATOMG", "ADD"), found.arch


@pytest.mark.parametrize("names", sampled(["redundant_rmsnorm", "head_split", "fused_head", "joint_heads"], 1))
def test_fewer_barriers_are_fewer_atomics(nvrtc, names):
    """Each barrier in the code is an atomic addition; a layer's is in the loop over layers, once."""
    for fewer, plain in zip(nvrtc.decode(names), nvrtc.decode(""), strict=True):
        saved = plain.count("ATOMG", "ADD") - fewer.count("ATOMG", "ADD")
        assert saved == 1 if names == "joint_heads" else saved > 0


@pytest.mark.parametrize(("names", "waits", "width"), sampled(GAINS, 1))
def test_gains_of_a_folded_norm_are_asked_for_before_the_wait(nvrtc, names, waits, width):
    """Their loads, the only ones of this width of weights, stand right before an arrival at a barrier, or before polls.

    A norm waits after embed, o_proj and down. Heads have two more norms, whose input only joint heads wait for.
    With columns a norm waits in qkv and gate_up, and loads gains by 128 bits.
    """
    source = Composed(tuple(names.split())).source(QWEN)
    for arch, cubin in nvrtc.cubins(source, fitting(source)).items():
        listing, gains = sass(cubin, cache_dir=nvrtc.cache), f"LDG.E.{width}.CONSTANT"
        found = re.findall(rf"{re.escape(gains)}|ATOMG|LDG\.E\.128\.STRONG|FFMA", listing)
        order = "".join({gains: "G", "ATOMG": "A", "FFMA": "F"}.get(each, "L") for each in found)
        assert "".join(sorted(re.findall(r"G+(.)", order))) == waits, (arch, order)


def test_by_value_needs_no_atomic_and_no_fence_in_a_layer(nvrtc):
    """Barriers of embed, of one block's final norm and of the argmax remain, and the words of the mail."""
    for value, plain in zip(nvrtc.decode("joint_heads folded_norm by_value"), nvrtc.decode(""), strict=True):
        assert value.count("ATOMG") == value.count("ATOMG", "ADD") == value.count("MEMBAR", "ALL", "GPU") == 3
        assert plain.count("ATOMG", "ADD") == plain.count("MEMBAR", "ALL", "GPU") == 11
        assert value.count("LDG", "128", "STRONG", "GPU") > 0 == plain.count("LDG", "128", "STRONG", "GPU")
    fused = "joint_heads folded_norm fused_head by_value"
    for value in nvrtc.decode(fused):
        assert value.count("ATOMG", "ADD") == 2  # the barrier of embed, and the head's count of blocks


def test_a_token_by_value_needs_no_atomic_at_all(nvrtc):
    """Its fences: before a block's candidate, and after all candidates."""
    for found in nvrtc.decode("joint_heads folded_norm by_value value_token"):
        assert found.count("ATOMG") + found.count("RED") == 0
        assert found.count("MEMBAR", "ALL", "GPU") == 2


def test_counted_sums_are_added_by_one_instruction_that_returns_nothing(nvrtc):
    """Atomics of 64 bits at GPU scope; no barrier and no fence is added to the token's."""
    names = ("joint_heads", "folded_norm", "by_value", "counted_sums")
    for own, plain in zip(nvrtc.decode(" ".join(names)), nvrtc.decode(" ".join(names[:-1])), strict=True):
        assert (own.spill_bytes, own.stack, own.local) == (0, 0, 0)
        added = own.count("RED", "ADD", "64", "STRONG", "GPU") + own.count("REDG", "ADD", "64", "STRONG", "GPU")
        assert added == own.count("RED") + own.count("REDG") == 1 > plain.count("RED") + plain.count("REDG")
        assert own.count("ATOMG") == plain.count("ATOMG")
        assert own.count("MEMBAR") == plain.count("MEMBAR")
        assert own.count("LDG", "128", "STRONG", "GPU") > 0


def test_the_fused_head_chooses_by_one_maximum(nvrtc):
    for found in nvrtc.decode("fused_head"):
        assert found.count("RED", "MAX", "64") + found.count("REDG", "MAX", "64") == 1
        assert found.count("ATOMG", "EXCH", "64") == 1


def test_graph_kernels_have_no_grid_barrier(nvrtc):
    source = Composed(("graph",)).source(QWEN)
    for kernel in KERNELS:
        for found in nvrtc.resources(source, kernel, fitting(source)):
            assert found.count("ATOMG") + found.count("RED") + found.count("MEMBAR") == 0, kernel
