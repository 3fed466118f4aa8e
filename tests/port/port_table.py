"""Which functions of port.cuh are not what the table says: their instructions, what may not move past them, entries."""

import math
import re
import struct

from port_rows import BULK, ROWS, SINCOS, SINCOS_TURNS
from port_text import PORT, ptx
from ptx_machine import Effect, Kernel, kernels

from common.model.stages import STAGES

TILE = "reinterpret_cast<Mbarrier *>(tile)"

# Calls that other memory accesses may not pass, and the instruction of each.
FENCES = {
    "stamp(unsigned long long *)": ("port::stamp(wide);", "mov.b64"),
    "block_barrier()": ("port::block_barrier();", "barrier.sync.aligned"),
    "named_sync(int, int)": ("port::named_sync(3, 96);", "barrier.sync.aligned"),
    "named_arrive(int, int)": ("port::named_arrive(3, 96);", "barrier.arrive.aligned"),
    "warp_barrier()": ("port::warp_barrier();", "bar.warp.sync"),
    "add_acq_rel(unsigned *, unsigned)": ("port::add_acq_rel(word, 1);", "atom.acq_rel.gpu.global.add.u32"),
    "load_acquire(const unsigned *)": ("port::load_acquire(word);", "ld.acquire.gpu.global.b32"),
    "store_release(unsigned *, unsigned)": ("port::store_release(word, 1);", "st.release.gpu.global.b32"),
    "max_relaxed(unsigned long long *, unsigned long long)": (
        "port::max_relaxed(wide, 1);",
        "red.relaxed.gpu.global.max.u64",
    ),
    "exchange_relaxed(unsigned long long *, unsigned long long)": (
        "port::exchange_relaxed(wide, 1);",
        "atom.relaxed.gpu.global.exch.b64",
    ),
    "add_relaxed(unsigned long long *, unsigned long long)": (
        "port::add_relaxed(wide, 1);",
        "red.relaxed.gpu.global.add.u64",
    ),
    "look_pair(const unsigned long long *, unsigned long long *)": (
        "{ unsigned long long pair[2]; port::look_pair(wide, pair); }",
        "ld.relaxed.gpu.global.v2.b64",
    ),
    "publish(float *, unsigned)": ("port::publish(value, 1);", "st.relaxed.gpu.global.b32"),
    "look(const float *)": ("port::look(value);", "ld.relaxed.gpu.global.v4.b32"),
    "fence()": ("port::fence();", "fence.acq_rel.gpu"),
    "copy_async(void *, const void *)": ("port::copy_async<16>(tile, wide);", "cp.async.cg.shared.global"),
    "copy_async(void *, const void *, L2)": (
        "port::copy_async(tile, wide, L2::pass);",
        "cp.async.cg.shared.global.L2::cache_hint",
    ),
    "copy_commit()": ("port::copy_commit();", "cp.async.commit_group"),
    "copy_wait()": ("port::copy_wait<1>();", "cp.async.wait_group"),
    "mbarrier_init(Mbarrier *, int)": (f"port::mbarrier_init({TILE}, 7);", "mbarrier.init.shared::cta.b64"),
    "mbarrier_init_fence()": ("port::mbarrier_init_fence();", "fence.mbarrier_init.release.cluster"),
    "mbarrier_arrive_copied(Mbarrier *)": (
        f"port::mbarrier_arrive_copied({TILE});",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64",
    ),
    "mbarrier_arrive(Mbarrier *)": (
        f"port::mbarrier_arrive({TILE});",
        "mbarrier.arrive.release.cta.shared::cta.b64",
    ),
    "mbarrier_arrive_expect(Mbarrier *, unsigned)": (
        f"port::mbarrier_arrive_expect({TILE}, 64);",
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64",
    ),
    "mbarrier_try_wait(Mbarrier *, unsigned)": (
        f"port::mbarrier_try_wait({TILE}, 4);",
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64",
    ),
    "copy_bulk(void *, const void *, unsigned, Mbarrier *, L2)": (f"port::copy_bulk(tile, wide, 16, {TILE});", BULK),
    "fence_proxy_async()": ("port::fence_proxy_async();", "fence.proxy.async"),
}
# Calls whose results no code may need, and which stay all the same, each as often as it stands there.
STAYING = FENCES | {
    "prefetch_l2(const void *)": ("port::prefetch_l2(word);", "prefetch.global.L2"),
    "touch_weights(const void *)": ("port::touch_weights(word);", "ld.volatile.global.b32"),
    "spin_pause()": ("port::spin_pause();", "nanosleep.u32"),
    "thread_anew()": ("port::thread_anew();", "mov.u32"),
}
AROUND = ("data", "word", "wide", "first", "second", "value")
TURNS = """
extern "C" __global__ void turns_{at}(double *sine, double *cosine) {{ port::sincos_turns({turns}, sine, cosine); }}
"""
PARAMETERS = "unsigned *data, unsigned *word, unsigned long long *wide, unsigned *first, unsigned *second, float *value"

ENTRIES = """
struct Arguments { const bf16 *weights; bf16 *cache; float *scratch; unsigned *state, *waits; };
template <class Kernel, Stage S = Stage::embed> DEVICE void run_stage(Arguments a, void *shared, int last) {
  a.cache[0] = a.weights[0];
  a.scratch[0] = 2;
  a.state[0] = last;
  a.waits[0] = int(S);
  static_cast<volatile unsigned *>(shared)[0] = 5;
}
template <class Kernel> DEVICE void run(Arguments a, void *shared, int steps) { run_stage<Kernel>(a, shared, steps); }
struct Made { struct Shared { alignas(ALIGNMENT) char bytes[BYTES]; }; };
KERNEL_ENTRY(Made, 96, 2)
STAGE_ENTRY(Made, 64, down)
"""
ENTERED = """
ld.global.b16 x0, [weights]; st.global.b16 [cache], x0; st.global.b32 [scratch], 0x40000000;
st.global.b32 [state], last; st.global.b32 [waits], {stage}; st.volatile.shared.b32 [{shared}], 5
"""
ENTRY_NAMES = ("KERNEL_ENTRY", "STAGE_ENTRY", "BlockMemory", "SHARED_BYTES")
STATIC = 48 << 10  # bytes of static shared memory that a block may have
DOWN = STAGES.index("down")


def fences(name: str, call: str) -> str:
    """Kernels where a compiler that may move or merge accesses past `call` would leave out one of two."""
    tile = "__shared__ uint4 tile[1];" if "tile" in call else ""
    loads = f"{tile} const unsigned x = *data; {call} const unsigned y = *data; *first = x; *second = y;"
    stores = f"{tile} *data = 1; {call} *data = 2;"
    return "\n".join(
        f'extern "C" __global__ void {name}_{kind}({PARAMETERS}) {{ {body} }}'
        for kind, body in (("loads", loads), ("stores", stores), ("calls", f"{tile} {call} {call}"))
    )


def wrong(arch: str, port: str = PORT, only: str = "") -> dict[str, str]:
    """The functions that do something else than the table says, and what they do. only: the one to look at."""
    if only in ENTRY_NAMES:
        return _wrong_entries(arch, port)
    rows = [row for row in ROWS if only in ("", row.function)]
    calls = {name: staying for name, staying in _staying(arch).items() if only in ("", name)}
    turns = SINCOS if only in ("", SINCOS_TURNS) else ()
    both = [
        [
            f'extern "C" __global__ void row_{at}({row.takes}) {{ {row.does} }}'
            for at, row in enumerate(rows)
            if row.loaders == loaders
        ]
        for loaders in (0, 1)
    ]
    made = both[0]
    made += [fences(f"call_{at}", call) for at, (call, _) in enumerate(calls.values())]
    made += [TURNS.format(at=at, turns=each) for at, each in enumerate(turns)]
    found = kernels(ptx("\n".join(made), arch, port))
    if both[1]:
        found |= kernels(ptx("\n".join(both[1]), arch, port, loaders=1))

    said: dict[str, str] = {}
    for at, row in enumerate(rows):
        does = found[f"row_{at}"].effects(*row.names)
        if does != [Effect.of(part) for part in row.on(arch).split(";") if part.strip()]:
            said.setdefault(row.function, "; ".join(map(str, does)))
    for at, (function, (_, name)) in enumerate(calls.items()):
        if passed := _passed([found[f"call_{at}_{kind}"] for kind in ("loads", "stores", "calls")], function, name):
            said.setdefault(function, passed)
    for at, each in enumerate(turns):
        if off := _off(found[f"turns_{at}"], eval(each)):
            said.setdefault(SINCOS_TURNS, off)
    return said if only else said | _wrong_entries(arch, port)


def _staying(arch: str) -> dict[str, tuple[str, str]]:
    """STAYING on a target: before sm_90 there is no bulk copy to fence for, and no wait that sleeps."""
    if int(arch.removeprefix("sm_")) >= 90:
        return STAYING
    found = {name: (call, text.replace("try_wait", "test_wait")) for name, (call, text) in STAYING.items()}
    return {name: each for name, each in found.items() if name != "mbarrier_init_fence()"}


def _passed(found: list[Kernel], function: str, name: str) -> str:
    """Instruction that moved past a call, or is missing; "" without any."""
    like = Effect.made(name, ())
    for kernel in found[:2] if function in FENCES else []:
        does = kernel.effects(*AROUND)
        seen = [_kind(each, like) for each in does]
        if [each for each in seen if each] != ["access", "call", "access"]:
            return "; ".join(map(str, does))
    twice = found[2].effects(*AROUND)
    return "" if [_kind(each, like) for each in twice].count("call") == 2 else "; ".join(map(str, twice))


def _kind(effect: Effect, call: Effect) -> str:
    if (effect.opcode, effect.modifiers) == (call.opcode, call.modifiers):
        return "call"
    return "access" if "[data]" in effect.operands else ""


def _off(kernel: Kernel, turns: float) -> str:
    """Error of sine and cosine of so many turns of a circle; "" if no more than rounding."""
    stored: dict[str, int] = {}
    kernel.effects("sine", "cosine", stored=stored)
    angle = 2 * math.pi * math.fmod(turns, 1)
    for name, want in (("sine", math.sin(angle)), ("cosine", math.cos(angle))):
        got = struct.unpack("<d", struct.pack("<Q", stored[name]))[0]
        if abs(got - want) > 2e-15:
            return f"the {name} of {turns} turns is {got}, not {want}"
    return ""


def _wrong_entries(arch: str, port: str) -> dict[str, str]:
    """As `wrong`: the kernels' parameters, launch bounds and shared memory."""
    said: dict[str, str] = {}
    for size, alignment in ((96, 16), (STATIC, 4), (STATIC + 16, 16)):
        text = ENTRIES.replace("BYTES", str(size)).replace("ALIGNMENT", str(alignment))
        module = ptx(text, arch, port)
        shared = (str(alignment), "memory", str(size)) if size <= STATIC else ("16", "dynamic", "")
        for name, macro, bounds, stage in (
            ("decode", "KERNEL_ENTRY", {".maxntid 96", ".minnctapersm 2"}, 0),
            ("stage_down", "STAGE_ENTRY", {".maxntid 64"}, DOWN),
        ):
            kernel = kernels(module)[name]
            means = ENTERED.format(stage=stage, shared=kernel.shared[0][1])
            does = kernel.effects("weights", "cache", "scratch", "state", "waits", "last")
            if does != [Effect.of(part) for part in means.split(";")] or kernel.limits != bounds:
                said.setdefault(macro, f"{sorted(kernel.limits)} " + "; ".join(map(str, does)))
            if kernel.shared != (shared,):
                said.setdefault("BlockMemory", f"{kernel.shared} for {size} bytes")
        declared = re.search(r"\.const \.align 4 \.[ub]32 shared_bytes = (\d+);", module)
        if not declared or int(declared[1]) != size:
            said.setdefault("SHARED_BYTES", f"{declared and declared[1]} for {size} bytes")
    return said
