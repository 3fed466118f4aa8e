"""Kernels of the tiny model in small blocks: correct ones, in which ThreadSanitizer must find no race, and the same
with one barrier, release or acquire removed.
"""

import dataclasses
import re
from pathlib import Path

from bare_kernel import bare_kernel
from composed import CATALOG, NAMED, VARIANTS, Composed

from common.compile.source import Source, build
from common.devices.host.sanitized import SanitizedDevice
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import LAYER_STAGES
from common.model.weights import load

TINY = Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)
THREADS = 64  # two warps, for speed
GIVEN = {"ratio": "1:1", "chunk": 16}  # of two warps; chunks short enough that attention has several

CLEAN = {str(each): each for each in (*VARIANTS, *NAMED)}
BARRIER_STAGES = ("embed", *LAYER_STAGES, "final_norm", "lm_head")
TOKEN = ("joint_heads", "folded_norm", "by_value", "value_token")
STREAM = ("joint_heads", "by_value", "bulk_ring", "stream_kv")
BARRIER, NOTHING = "port::block_barrier();", ";"
BLOCK_BARRIERS = {  # every __syncthreads: a stack that needs it, and the text before it; "": the last one of the stack
    "block_sum": ((), "if (lane() == 0) partial[warp()] = value;"),
    "block_best": ((), "if (lane() == 0) partial[warp()] = best;"),
    "attend_block": ((), "= soft.value[p * Split::width + j];"),
    "between two heads": ((), "publish(i, value / sum); });"),
    "grid_barrier, before": ((), "grid_barrier(const Context &c, Stage stage, int layer) {"),
    "grid_barrier, after": ((), "0x80000000u) != 0; });"),
    "epoch_barrier, before": (("atomic_barrier",), "Meanwhile meanwhile) {"),
    "epoch_barrier, after": (("atomic_barrier",), "    meanwhile();"),
    "redundant_rmsnorm": (("redundant_rmsnorm",), ""),
    "smem_cache": (("smem_cache",), ""),
    "head_split": (("head_split",), ""),
    "split_kv": (("split_kv",), ""),
    "fused_head": (("fused_head",), ""),
    "joint_heads": (("joint_heads",), ""),
    "folded_norm": (("folded_norm",), ""),
    "by_value": (("joint_heads", "folded_norm", "by_value"), ""),
    "counted_sums": (("joint_heads", "folded_norm", "by_value", "counted_sums"), ""),
    "columns": (("joint_heads", "by_value", "bulk_ring", "columns"), ""),
    "merge_warps": (STREAM, "template <int N, class Out> DEVICE void merge_warps("),
    "tensor_scores": ((*STREAM, "tensor_scores"), "store_terms(x, i,"),
    "stream_kv, query": (STREAM, "for (int h = 0; h < share.heads; ++h) {"),
    "stream_kv, parts": (STREAM, ""),
    "value_token, angles": (TOKEN, "if (!makes_angles()) return;"),
    "value_token, final norm": (TOKEN, "constexpr (S == Stage::final_norm) {"),
    "value_token, token": (TOKEN, ""),
}
BLOCKS = {"counted_sums": 5}  # where it takes a block without a head; three show every other race
ADD = (
    "[&] {{ const unsigned before = __atomic_fetch_add({word}, {value}, {order}); "
    "host::progressed(); return before; }}()"
)
ORDERS = {  # stack, its text, the replacement
    "grid barrier, no release": (
        "",
        "port::add_acq_rel(arrived, mine)",
        ADD.format(word="arrived", value="mine", order="__ATOMIC_ACQUIRE"),
    ),
    "grid barrier, no acquire": ("", "^ port::load_acquire(arrived)", "^ __atomic_load_n(arrived, __ATOMIC_RELAXED)"),
    "epoch barrier, no release on arrival": (
        "atomic_barrier",
        "port::add_acq_rel(arrived, 1)",
        ADD.format(word="arrived", value="1u", order="__ATOMIC_ACQUIRE"),
    ),
    "epoch barrier, no acquire of the epoch": (
        "atomic_barrier",
        "return port::load_acquire(epoch)",
        "return __atomic_load_n(epoch, __ATOMIC_RELAXED)",
    ),
    "fused head, no order": (
        "fused_head",
        "port::add_acq_rel(head + 2, 1)",
        ADD.format(word="head + 2", value="1u", order="__ATOMIC_RELAXED"),
    ),
    "value_token, no fence before a candidate": (" ".join(TOKEN), "port::fence();\n  port::publish", "port::publish"),
    "value_token, no fence after the candidates": (" ".join(TOKEN), "port::fence();\n    port::count", "port::count"),
    "value_token, no acquire of the angles": (
        " ".join(TOKEN),
        "port::load_acquire(c.state + state_at::head)",
        "__atomic_load_n(c.state + state_at::head, __ATOMIC_RELAXED)",
    ),
}
NAMED_BARRIERS = ("full", "empty")


def source_of(composed: Composed) -> Source:
    own = {knob.name for name in composed.names for knob in CATALOG.variants[name].knobs}
    given = {key: value for key, value in GIVEN.items() if key in own}
    return dataclasses.replace(composed, given={**composed.given, **given}).source(TINY, THREADS)


def without(source: Source, old: str, new: str, after: str = "") -> Source:
    """The source with the first `old` after the text `after` replaced; without `after`, the last `old`."""
    assert after in source.text, f"the source does not contain {after!r}"
    assert old in source.text, f"the source does not contain {old!r}"
    at = source.text.index(old, source.text.index(after)) if after else source.text.rindex(old)
    return dataclasses.replace(source, text=source.text[:at] + new + source.text[at + len(old) :])


def without_grid_barrier(stage: str) -> Source:
    return without(build([], TINY, THREADS), "S != Stage::argmax", f"S != Stage::argmax && S != Stage::{stage}")


def without_block_barrier(site: str) -> Source:
    names, after = BLOCK_BARRIERS[site]
    return without(source_of(Composed(names)), BARRIER, NOTHING, after)


def without_order(name: str) -> Source:
    stack, old, new = ORDERS[name]
    return without(source_of(Composed(tuple(stack.split()))), old, new)


def without_named_barrier(name: str) -> Source:
    source = source_of(Composed(("warp_split",)))
    call = rf"port::named_(sync|arrive)\({name} \+ item % slots, block_threads\);"
    text, count = re.subn(call, "static_cast<void>(item);", source.text)
    assert count >= 2, f"the source does not contain two of {call!r}"
    return dataclasses.replace(source, text=text)


def kernel(body: str) -> Source:
    """A kernel whose step is `body`; `s` is the shared struct, `out` the scratch buffer."""
    return bare_kernel(TINY, body, "alignas(16) float a[64];", THREADS)


COPY = """const bool first = port::thread() == 0;
if (first) {{ port::copy_async<16>(s.a, c.weights); port::copy_commit(); }}
{early}
if (first) port::copy_wait<0>();
{late}
out[port::block() * 64 + port::thread()] = s.a[0];"""
BODIES = {  # its body, and the two lines of its race in "test", if it has one
    "copy, then a barrier after the wait": (COPY.format(early=NOTHING, late=BARRIER), None),
    "copy, with the barrier before the wait": (COPY.format(early=BARRIER, late=NOTHING), ("write 4", "read 6")),
    "a shuffle orders no memory": (
        """if (lane() == 0) s.a[warp()] = 1;
        port::shuffle_xor(1, 1);
        if (lane() == 1) out[warp()] = s.a[warp()];""",
        ("write 1", "read 3"),
    ),
    "a warp barrier does, within its warp": (
        """if (lane() == 0) s.a[warp()] = 1;
        port::warp_barrier();
        if (lane() == 1 && port::block() == 0) out[warp()] = s.a[warp()];""",
        None,
    ),
    "but not beyond it": (
        """if (port::thread() == 0) s.a[0] = 1;
        port::warp_barrier();
        if (port::thread() == 32) out[port::block()] = s.a[0];""",
        ("write 1", "read 3"),
    ),
    "a block that has ended orders nothing for another": (
        """if (port::thread() == 0 && port::block() == 0) out[0] = 1;
        if (port::thread() == 0 && port::block() == 2)
            out[1] = out[0];""",
        ("write 1", "read 3"),
    ),
    "two atomics and a plain write": (
        """if (port::thread() == 0) port::add_acq_rel(c.state + state_at::arrived, 1);
        if (port::thread() == 1)
            c.state[state_at::arrived] = 0;""",
        ("atomic write 1", "write 3"),
    ),
    "a read and a write of the same launch, in order": ("out[port::block() * 64 + port::thread()] = 1;", None),
}


def has_thread_sanitizer(cache: Path) -> bool:
    """True if ThreadSanitizer works on this machine."""
    device = SanitizedDevice(cache / "kernels")
    weights = load("synthetic", TINY, None, cache / "weights")[2].flat
    try:
        session = device.session(device.compile(build([], TINY, THREADS)), weights, 1)
        session.reset([1], 0)
        session.run()
    except LabError:
        return False
    return True
