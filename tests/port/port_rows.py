"""Meaning of every function of `namespace port` on CUDA, written as PTX by the PTX ISA, and how to see it.

x0, x1, ... are the words that instructions bring, in their order. Modifiers may stand in any order, and the type of a
load, store, move, shuffle or exchange only says how many bits (bN).
"""

from dataclasses import dataclass

SINCOS = ("0.0", "0.125", "0.25", "1.0 / 12", "0.3", "0.5", "0.999", "21845.7", "123456.789")  # turns


@dataclass(frozen=True)
class Row:
    """function: its signature. takes, does: parameters and body of a kernel that calls it; means: its effects.

    loaders: warps of a block beside those that compute. old: the effects before sm_90, where they are others.
    """

    function: str
    takes: str
    does: str
    means: str
    loaders: int = 0
    old: str | None = None

    def on(self, arch: str) -> str:
        """Its effects on a target."""
        return self.means if self.old is None or int(arch.removeprefix("sm_")) >= 90 else self.old

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.split()[-1].lstrip("*") for part in self.takes.split(",") if part.strip())


def _weights(width: int, keep: str, load: str) -> Row:
    words = "abcd"[: width // 4]
    return Row(
        "load_weights(const bf16 *)",
        "const bf16 *from, " + ", ".join(f"unsigned *{word}" for word in words),
        f"auto p = port::load_weights<{width}{keep}>(from);" + _words(words),
        load + " [from]; " + _stored(words),
    )


def _loads(width: int, load: str) -> Row:
    words = "abcd"[: width // 4]
    return Row(
        "load(const void *)",
        "const void *from, " + ", ".join(f"unsigned *{word}" for word in words),
        f"auto p = port::load<Data::kv, {width}>(from);" + _words(words),
        load + " [from]; " + _stored(words),
    )


def _words(words: str) -> str:
    return " ".join(f"*{word} = p.word[{at}];" for at, word in enumerate(words))


def _stored(words: str) -> str:
    return "; ".join(f"st.global.b32 [{word}], x{at}" for at, word in enumerate(words))


def _stores(width: int, store: str) -> Row:
    words = "abcd"[: width // 4]
    takes = "void *to, " + ", ".join(f"unsigned {word}" for word in words)
    return Row(
        "store_packet(void *, const Packet<Bytes> &)",
        takes,
        f"port::store_packet<{width}>(to, {{{', '.join(words)}}});",
        store,
    )


def _copies(width: int, cached: str) -> Row:
    return Row(
        "copy_async(void *, const void *)",
        "const char *from",
        f"__shared__ uint4 tile[4]; port::copy_async<{width}>(tile + 2, from);",
        f"cp.async.{cached}.shared.global [tile+32], [from], {width}",
    )


def _words_of(names: str, kind: str) -> str:
    return ", ".join(kind + name for name in names)


def _sums(products: int) -> str:
    return " ".join(f"out[{at}] = r.sums[{at // 4}][{at % 4}];" for at in range(4 * products))


def _stored_sums(*firsts: int) -> str:
    words = [f"x{first + at}" for first in firsts for at in range(4)]
    return "; ".join(f"st.global.b32 [out{f'+{4 * at}' if at else ''}], {word}" for at, word in enumerate(words))


MULTIPLY_ADD = "multiply_add(const Packet<16> *, const Packet<16> *)"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"


def _phases(function: str, takes: str, does: str, means: str, old: str = "") -> Row:
    body = f"__shared__ uint4 tile[4]; port::mbarrier_{does.format('reinterpret_cast<Mbarrier *>(tile + 1)')}"
    return Row(function, takes, body, f"mbarrier.{means}", old=f"mbarrier.{old}" if old else None)


WORD, LONG = "unsigned *word, unsigned value", "unsigned long long *word, unsigned long long value"
KEEP = ", L1::no_allocate"
ROWS: tuple[Row, ...] = (
    Row("thread()", "int *out", "*out = port::thread();", "st.global.b32 [out], %tid.x"),
    Row("block()", "int *out", "*out = port::block();", "st.global.b32 [out], %ctaid.x"),
    Row("blocks()", "int *out", "*out = port::blocks();", "st.global.b32 [out], %nctaid.x"),
    Row("mark(Stage, int)", "", "port::mark(Stage::embed, 1);", ""),
    Row("count_grid_barrier()", "", "port::count_grid_barrier();", ""),
    Row(
        "stamp(unsigned long long *)",
        "unsigned long long *to",
        "port::stamp(to);",
        "mov.b64 x0, %globaltimer; st.global.b64 [to], x0",
    ),
    Row("as_float(unsigned)", "unsigned bits, float *out", "*out = port::as_float(bits);", "st.global.b32 [out], bits"),
    Row("as_bits(float)", "float value, unsigned *out", "*out = port::as_bits(value);", "st.global.b32 [out], value"),
    Row(
        "rsqrt(float)",
        "float value, float *out",
        "*out = port::rsqrt(value);",
        "rsqrt.approx.ftz.f32 x0, value; st.global.b32 [out], x0",
    ),
    Row(
        "quotient(float, float)",
        "float value, float by, float *out",
        "*out = port::quotient(value, by);",
        "div.approx.ftz.f32 x0, value, by; st.global.b32 [out], x0",
    ),
    _weights(4, "", "ld.global.nc.b32 x0,"),
    _weights(4, KEEP, "ld.global.nc.b32 x0,"),  # so few bytes are a remainder, which may be read again
    _weights(8, "", "ld.global.nc.v2.b32 {x0, x1},"),
    _weights(8, KEEP, "ld.global.nc.L1::no_allocate.v2.b32 {x0, x1},"),
    _weights(16, "", "ld.global.nc.v4.b32 {x0, x1, x2, x3},"),
    _weights(16, KEEP, "ld.global.nc.L1::no_allocate.v4.b32 {x0, x1, x2, x3},"),
    _loads(4, "ld.global.b32 x0,"),
    _loads(8, "ld.global.v2.b32 {x0, x1},"),
    _loads(16, "ld.global.v4.b32 {x0, x1, x2, x3},"),
    _stores(4, "st.global.b32 [to], a"),
    _stores(8, "st.global.v2.b32 [to], {a, b}"),
    _stores(16, "st.global.v4.b32 [to], {a, b, c, d}"),
    Row(  # a bf16 is the upper half of a float, here 0xf1e of the word that comes
        "load_weight(const bf16 *)",
        "const bf16 *from, float *out",
        "*out = port::load_weight(from);",
        "ld.global.nc.b16 x0, [from]; st.global.b32 [out], 0xf1e0000",
    ),
    Row(
        "load_activation(const float *)",
        "const float *from, float *out",
        "*out = port::load_activation(from);",
        "ld.global.b32 x0, [from]; st.global.b32 [out], x0",
    ),
    Row(
        "store_activation(float *, float)",
        "float *to, float value",
        "port::store_activation(to, value);",
        "st.global.b32 [to], value",
    ),
    Row("store_kv(bf16 *, bf16)", "bf16 *to", "port::store_kv(to, 0x3f80);", "st.global.b16 [to], 16256"),
    Row(
        "prefetch_l2(const void *)",
        "const void *address",
        "port::prefetch_l2(address);",
        "prefetch.global.L2 [address]",
    ),
    Row(
        "touch_weights(const void *)",
        "const void *address",
        "port::touch_weights(address);",
        "ld.volatile.global.b32 x0, [address]",
    ),
    Row("block_barrier()", "", "port::block_barrier();", "barrier.sync.aligned 0"),
    Row("block_barrier()", "", "port::block_barrier();", "barrier.sync.aligned 0, 96", loaders=1),
    Row("named_sync(int, int)", "", "port::named_sync(3, 96);", "barrier.sync.aligned 3, 96"),
    Row("named_arrive(int, int)", "", "port::named_arrive(3, 96);", "barrier.arrive.aligned 3, 96"),
    Row("warp_barrier()", "", "port::warp_barrier();", "bar.warp.sync -1"),
    Row(  # all 32 lanes of a warp of 32 (31: no segments), each with the lane whose number differs in `mask`
        "shuffle_xor(float, int)",
        "float value, int mask, float *out",
        "*out = port::shuffle_xor(value, mask);",
        "shfl.sync.bfly.b32 x0, value, mask, 31, -1; st.global.b32 [out], x0",
    ),
    Row(
        "shuffle_xor(int, int)",
        "int value, int mask, int *out",
        "*out = port::shuffle_xor(value, mask);",
        "shfl.sync.bfly.b32 x0, value, mask, 31, -1; st.global.b32 [out], x0",
    ),
    Row(
        "add_acq_rel(unsigned *, unsigned)",
        f"{WORD}, unsigned *out",
        "*out = port::add_acq_rel(word, value);",
        "atom.acq_rel.gpu.global.add.u32 x0, [word], value; st.global.b32 [out], x0",
    ),
    Row(
        "load_acquire(const unsigned *)",
        "const unsigned *word, unsigned *out",
        "*out = port::load_acquire(word);",
        "ld.acquire.gpu.global.b32 x0, [word]; st.global.b32 [out], x0",
    ),
    Row(
        "store_release(unsigned *, unsigned)",
        WORD,
        "port::store_release(word, value);",
        "st.release.gpu.global.b32 [word], value",
    ),
    Row(
        "max_relaxed(unsigned long long *, unsigned long long)",
        LONG,
        "port::max_relaxed(word, value);",
        "red.relaxed.gpu.global.max.u64 [word], value",
    ),
    Row(
        "exchange_relaxed(unsigned long long *, unsigned long long)",
        f"{LONG}, unsigned long long *out",
        "*out = port::exchange_relaxed(word, value);",
        "atom.relaxed.gpu.global.exch.b64 x0, [word], value; st.global.b64 [out], x0",
    ),
    Row(
        "add_relaxed(unsigned long long *, unsigned long long)",
        LONG,
        "port::add_relaxed(word, value);",
        "red.relaxed.gpu.global.add.u64 [word], value",
    ),
    Row(
        "look_pair(const unsigned long long *, unsigned long long *)",
        "const unsigned long long *from, unsigned long long *to",
        "unsigned long long word[2]; port::look_pair(from, word); to[0] = word[0]; to[1] = word[1];",
        "ld.relaxed.gpu.global.v2.b64 {x0, x1}, [from]; st.global.b64 [to], x0; st.global.b64 [to+8], x1",
    ),
    Row(
        "publish(float *, unsigned)",
        "float *to, unsigned bits",
        "port::publish(to, bits);",
        "st.relaxed.gpu.global.b32 [to], bits",
    ),
    Row(
        "look(const float *)",
        "const float *from, unsigned *a, unsigned *b, unsigned *c, unsigned *d",
        "auto p = port::look(from);" + _words("abcd"),
        "ld.relaxed.gpu.global.v4.b32 {x0, x1, x2, x3}, [from]; " + _stored("abcd"),
    ),
    Row("fence()", "", "port::fence();", "fence.acq_rel.gpu"),
    Row("count_looked(const float *)", "const float *from", "port::count_looked(from);", ""),
    Row("spin_pause()", "", "port::spin_pause();", "nanosleep.u32 32"),
    Row("spin_again()", "", "port::spin_again();", ""),
    Row("trap()", "", "port::trap();", "fence.sc.sys; trap"),
    _copies(4, "ca"),
    _copies(8, "ca"),
    _copies(16, "cg"),  # not through L1, which is only possible for 16 bytes
    *(
        Row(
            "copy_async(void *, const void *, L2)",
            "const char *from",
            f"__shared__ uint4 tile[4]; port::copy_async(tile + 2, from, L2::{lines});",
            f"createpolicy.fractional.L2::{policy}.b64 x0, 1.0; "
            "cp.async.cg.shared.global.L2::cache_hint [tile+32], [from], 16, x0",
        )
        for lines, policy in (("pass", "evict_first"), ("keep", "evict_last"))
    ),
    Row("copy_commit()", "", "port::copy_commit();", "cp.async.commit_group"),
    *(Row("copy_wait()", "", f"port::copy_wait<{n}>();", f"cp.async.wait_group {n}") for n in (0, 1, 3)),
    _phases("mbarrier_init(Mbarrier *, int)", "int n", "init({}, n);", "init.shared::cta.b64 [tile+16], n"),
    Row(
        "mbarrier_init_fence()",
        "",
        "port::mbarrier_init_fence();",
        "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta",
        old="",
    ),
    Row(
        "mbarrier_arrive_copied(Mbarrier *)",
        "",
        "__shared__ uint4 tile[4]; port::mbarrier_arrive_copied(reinterpret_cast<Mbarrier *>(tile + 1));",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile+16]",
    ),
    _phases("mbarrier_arrive(Mbarrier *)", "", "arrive({});", "arrive.release.cta.shared::cta.b64 _, [tile+16]"),
    _phases(
        "mbarrier_arrive_expect(Mbarrier *, unsigned)",
        "unsigned n",
        "arrive_expect({}, n);",
        "arrive.expect_tx.release.cta.shared::cta.b64 _, [tile+16], n",
    ),
    *(  # the parity of the phase, and nanoseconds
        _phases(
            "mbarrier_try_wait(Mbarrier *, unsigned)",
            "int *out",
            f"try_wait({{}}, {phase}) ? *out = 5 : *out = 7;",
            f"try_wait.parity.acquire.cta.shared::cta.b64 x0, [tile+16], {phase % 2}, 1000; st.global.b32 [out], 5",
            f"test_wait.parity.acquire.cta.shared::cta.b64 x0, [tile+16], {phase % 2}; st.global.b32 [out], 5",
        )
        for phase in (2, 3)
    ),
    *(  # 1.0: of all bytes
        Row(
            "copy_bulk(void *, const void *, unsigned, Mbarrier *, L2)",
            "const char *from, unsigned n",
            "__shared__ uint4 tile[4]; "
            f"port::copy_bulk(tile + 2, from, n, reinterpret_cast<Mbarrier *>(tile + 1){lines});",
            f"createpolicy.fractional.L2::{policy}.b64 x0, 1.0; {BULK} [tile+32], [from], n, [tile+16], x0",
        )
        for lines, policy in (("", "evict_first"), (", L2::pass", "evict_first"), (", L2::keep", "evict_last"))
    ),
    Row("fence_proxy_async()", "", "port::fence_proxy_async();", "fence.proxy.async"),
    Row("thread_anew()", "int *out", "*out = port::thread_anew();", "st.global.b32 [out], %tid.x"),
    Row(  # of each other matrix two halves of the columns, the second on top of the first
        MULTIPLY_ADD,
        _words_of("abcdefghijklmnop", "unsigned ") + ", float *out",
        "const Packet<16> left[] = {{{a, b, c, d}}, {{e, f, g, h}}}, right[] = {{{i, j, k, l}}, {{m, n, o, p}}};"
        "auto r = port::multiply_add<1, 2>(left, right); " + _sums(2),
        f"{MMA} {{x0, x1, x2, x3}}, {{a, b, c, d}}, {{i, j}}, {{0, 0, 0, 0}}; "
        f"{MMA} {{x4, x5, x6, x7}}, {{e, f, g, h}}, {{k, l}}, {{x0, x1, x2, x3}}; "
        f"{MMA} {{x8, x9, x10, x11}}, {{a, b, c, d}}, {{m, n}}, {{0, 0, 0, 0}}; "
        f"{MMA} {{x12, x13, x14, x15}}, {{e, f, g, h}}, {{o, p}}, {{x8, x9, x10, x11}}; " + _stored_sums(4, 12),
    ),
    Row(  # of one other matrix two halves of the columns, and the sum of both
        MULTIPLY_ADD,
        _words_of("abcdefghijkl", "unsigned ") + ", float *out",
        "const Packet<16> left[] = {{{a, b, c, d}}, {{e, f, g, h}}}, right[] = {{{i, j, k, l}}};"
        "auto r = port::multiply_add<1, 1>(left, right); " + _sums(1),
        f"{MMA} {{x0, x1, x2, x3}}, {{a, b, c, d}}, {{i, j}}, {{0, 0, 0, 0}}; "
        f"{MMA} {{x4, x5, x6, x7}}, {{e, f, g, h}}, {{k, l}}, {{0, 0, 0, 0}}; "
        + "; ".join(f"add.rn.ftz.f32 x{8 + at}, x{at}, x{4 + at}" for at in range(4))
        + "; "
        + _stored_sums(8),
    ),
)
SINCOS_TURNS = "sincos_turns(double, double *, double *)"
