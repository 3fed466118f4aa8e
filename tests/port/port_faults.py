"""Faults of port.cuh that compile, each with the function that the table must name: (function, text, wrong text)."""

from port_rows import MULTIPLY_ADD, SINCOS_TURNS

STAMP, LOAD, WEIGHTS = "stamp(unsigned long long *)", "load(const void *)", "load_weights(const bf16 *)"
PACKET, TOUCH = "store_packet(void *, const Packet<Bytes> &)", "touch_weights(const void *)"
ADD, ACQUIRE, RELEASE = (
    "add_acq_rel(unsigned *, unsigned)",
    "load_acquire(const unsigned *)",
    "store_release(unsigned *, unsigned)",
)
MAX = "max_relaxed(unsigned long long *, unsigned long long)"
EXCHANGE = "exchange_relaxed(unsigned long long *, unsigned long long)"
SUM = "add_relaxed(unsigned long long *, unsigned long long)"
PAIR = "look_pair(const unsigned long long *, unsigned long long *)"
PUBLISH, LOOK = "publish(float *, unsigned)", "look(const float *)"
SYNC, ARRIVE, COPY = "named_sync(int, int)", "named_arrive(int, int)", "copy_async(void *, const void *)"
INIT, PHASE, BULK = (
    "mbarrier_init(Mbarrier *, int)",
    "mbarrier_try_wait(Mbarrier *, unsigned)",
    "copy_bulk(void *, const void *, unsigned, Mbarrier *, L2)",
)
COMING, EXPECTING = "mbarrier_arrive(Mbarrier *)", "mbarrier_arrive_expect(Mbarrier *, unsigned)"
FLOATS, INTS = "shuffle_xor(float, int)", "shuffle_xor(int, int)"


def _idle(function: str, ptx: str, operands: str, clobber: str) -> tuple[str, str, str]:
    """An asm that the compiler may move, merge and drop. Without either of `volatile` and the clobber NVVM does not."""
    return function, f'asm volatile("{ptx}"{operands}{clobber})', f'asm("{ptx}"{operands})'


CHANGED = (
    ("thread()", "return threadIdx.x", "return threadIdx.y"),
    ("block()", "return blockIdx.x", "return threadIdx.x"),
    ("blocks()", "return gridDim.x", "return blockDim.x"),
    ("mark(Stage, int)", "void mark(Stage, int) {}", "void mark(Stage, int) { __syncthreads(); }"),
    ("count_grid_barrier()", "count_grid_barrier() {}", "count_grid_barrier() { __threadfence(); }"),
    (STAMP, "%%globaltimer", "%%clock64"),
    ("as_float(unsigned)", "__uint_as_float(bits);", "float(bits);"),
    ("as_float(unsigned)", "__uint_as_float(bits);", "__int_as_float(bits >> 1);"),
    ("as_bits(float)", "__float_as_uint(value)", "unsigned(value)"),
    (SINCOS_TURNS, "sincospi(2 * turns, sine", "sincospi(turns, sine"),
    (SINCOS_TURNS, "sincospi(2 * turns, sine", "sincospi(2.0000001 * turns, sine"),
    (SINCOS_TURNS, "sincospi(2 * turns, sine, cosine)", "sincospi(2 * turns, cosine, sine)"),
    (SINCOS_TURNS, "sincospi(2 * turns", "sincospi(float(2 * turns)"),
    (WEIGHTS, "ld.global.nc.u32 %0, [%1]", "ld.global.nc.u16 %0, [%1]"),
    (WEIGHTS, "ld.global.nc.v2.u32 {%0, %1}", "ld.global.nc.v2.u32 {%1, %0}"),
    (WEIGHTS, "ld.global.nc.L1::no_allocate.v2.u32", "ld.global.nc.v2.u32"),
    (WEIGHTS, "ld.global.nc.v4.u32 {%0, %1, %2, %3}", "ld.global.nc.v4.u32 {%0, %2, %1, %3}"),
    (WEIGHTS, "ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]", "ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4+16]"),
    (WEIGHTS, "ld.global.nc.L1::no_allocate.v4.u32 {%0", "ld.global.nc.L1::evict_last.v4.u32 {%0"),
    (
        WEIGHTS,
        'if constexpr (Keep == L1::allocate)\n      asm("ld.global.nc.v4',
        'if constexpr (Keep != L1::allocate)\n      asm("ld.global.nc.v4',
    ),
    (LOAD, "return {*static_cast<const unsigned *>(from)}", "return {__ldg(static_cast<const unsigned *>(from))}"),
    (LOAD, "return {v.x, v.y};", "return {v.y, v.x};"),
    (LOAD, "return {v.x, v.y, v.z, v.w};", "return {v.x, v.y, v.w, v.z};"),
    (
        LOAD,
        "const uint4 v = *static_cast<const uint4 *>(from)",
        "const uint4 v = __ldg(static_cast<const uint4 *>(from))",
    ),
    (
        LOAD,
        "const uint2 v = *static_cast<const uint2 *>(from)",
        "const uint2 v = __ldcg(static_cast<const uint2 *>(from))",
    ),
    (PACKET, "*static_cast<unsigned *>(to) = p", "*static_cast<unsigned short *>(to) = p"),
    (PACKET, "= {p.word[0], p.word[1]};", "= {p.word[1], p.word[0]};"),
    (PACKET, "p.word[2], p.word[3]};", "p.word[2], p.word[2]};"),
    (PACKET, "*static_cast<uint4 *>(to) =", "static_cast<uint4 *>(to)[1] ="),
    ("load_weight(const bf16 *)", "unsigned(__ldg(from)) << 16", "unsigned(__ldg(from)) << 15"),
    ("load_weight(const bf16 *)", "__ldg(from)", "from[1]"),
    ("load_activation(const float *)", "return *from;", "return __ldg(from);"),
    (
        "store_activation(float *, float)",
        "void store_activation(float *to, float value) { *to = value; }",
        "void store_activation(float *to, float value) { to[1] = value; }",
    ),
    (
        "store_kv(bf16 *, bf16)",
        "void store_kv(bf16 *to, bf16 value) { *to = value; }",
        "void store_kv(bf16 *to, bf16 value) { *(unsigned *)to = value; }",
    ),
    ("prefetch_l2(const void *)", "prefetch.global.L2 [%0]", "prefetch.global.L1 [%0]"),
    (TOUCH, "ld.volatile.global.u32", "ld.global.u32"),
    (TOUCH, 'asm volatile("ld.volatile', 'asm("ld.volatile'),
    ("block_barrier()", "__syncthreads()", "__syncwarp()"),
    (SYNC, "bar.sync %0, %1", "bar.sync %1, %0"),
    (SYNC, "bar.sync %0, %1", "bar.arrive %0, %1"),
    (ARRIVE, "bar.arrive %0, %1", "bar.sync %0, %1"),
    ("warp_barrier()", "__syncwarp()", "__syncwarp(0xffff)"),
    (
        FLOATS,
        "float value, int mask) { return __shfl_xor_sync(0xffffffffu",
        "float value, int mask) { return __shfl_xor_sync(0x7fffffffu",
    ),
    (FLOATS, "float value, int mask) { return __shfl_xor_sync", "float value, int mask) { return __shfl_down_sync"),
    (
        INTS,
        "int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask",
        "int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask, 16",
    ),
    (
        INTS,
        "int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask)",
        "int value, int mask) { return __shfl_xor_sync(0xffffffffu, mask, value)",
    ),
    (ADD, "atom.add.acq_rel.gpu", "atom.add.acq_rel.cta"),
    (ADD, "atom.add.acq_rel.gpu", "atom.add.relaxed.gpu"),
    (ADD, "atom.add.acq_rel.gpu", "atom.add.release.gpu"),
    (ADD, "atom.add.acq_rel.gpu", "atom.max.acq_rel.gpu"),
    (ADD, ': "l"(word), "r"(value)', ': "l"(word), "r"(1)'),
    (ADD, "return before;\n}\nDEVICE unsigned load_acquire", "return before + value;\n}\nDEVICE unsigned load_acquire"),
    (ACQUIRE, "ld.acquire.gpu", "ld.acquire.cta"),
    (ACQUIRE, "ld.acquire.gpu", "ld.relaxed.gpu"),
    (ACQUIRE, "ld.acquire.gpu.global", "ld.volatile.global"),
    (RELEASE, "st.release.gpu", "st.release.cta"),
    (RELEASE, "st.release.gpu", "st.relaxed.gpu"),
    (RELEASE, "st.release.gpu.global.u32 [%0], %1", "st.release.gpu.global.u32 [%0+4], %1"),
    (MAX, "max.u64", "min.u64"),
    (MAX, "max.u64", "max.s64"),
    (MAX, "red.relaxed.gpu.global.max", "red.relaxed.cta.global.max"),
    (EXCHANGE, "atom.relaxed.gpu.global.exch", "atom.relaxed.cta.global.exch"),
    (EXCHANGE, "atom.relaxed.gpu.global.exch.b64", "atom.relaxed.gpu.global.max.u64"),
    (SUM, "add.u64", "max.u64"),
    (SUM, "red.relaxed.gpu.global.add", "red.relaxed.cta.global.add"),
    (SUM, "red.relaxed.gpu.global.add", "red.release.gpu.global.add"),
    (PAIR, "ld.relaxed.gpu.global.v2.u64", "ld.relaxed.cta.global.v2.u64"),
    (PAIR, "ld.relaxed.gpu.global.v2.u64", "ld.weak.global.v2.u64"),
    (PAIR, "v2.u64 {%0, %1}", "v2.u64 {%1, %0}"),
    (PUBLISH, "st.relaxed.gpu", "st.relaxed.cta"),
    (PUBLISH, "st.relaxed.gpu", "st.release.gpu"),
    (PUBLISH, "st.relaxed.gpu.global.u32 [%0], %1", "st.relaxed.gpu.global.u32 [%0+4], %1"),
    (LOOK, "ld.relaxed.gpu.global.v4", "ld.relaxed.cta.global.v4"),
    (LOOK, "ld.relaxed.gpu.global.v4", "ld.weak.global.v4"),
    (LOOK, "ld.relaxed.gpu.global.v4.u32 {%0, %1", "ld.relaxed.gpu.global.v4.u32 {%1, %0"),
    (
        "count_looked(const float *)",
        "count_looked(const float *) {}",
        "count_looked(const float *) { __threadfence(); }",
    ),
    ("fence()", "fence.acq_rel.gpu", "fence.acq_rel.cta"),
    ("spin_pause()", "{ __nanosleep(32); }", "{}"),
    ("spin_pause()", "__nanosleep(32)", "__nanosleep(32000000)"),
    ("trap()", "__threadfence_system();", "__threadfence();"),
    ("trap()", "__threadfence_system();", ""),
    ("trap()", 'asm volatile("trap;");', 'asm volatile("exit;");'),
    (COPY, "cp.async.cg.shared.global [%0], [%1], 16;", "cp.async.ca.shared.global [%0], [%1], 16;"),
    (COPY, "cp.async.cg.shared.global [%0], [%1], 16;", "cp.async.cg.shared.global [%0], [%1], 16, 8;"),
    (COPY, '"n"(Bytes) : "memory"', '"n"(4) : "memory"'),
    (COPY, "to = shared_address(shared)", "to = shared_address(shared) + 16"),
    ("copy_commit()", "cp.async.commit_group;", "cp.async.wait_all;"),
    ("block_barrier()", '"n"(block_threads)', '"n"(block_threads + 32)'),
    ("block_barrier()", "bar.sync 0, %0;", "bar.sync 1, %0;"),
    (INIT, "mbarrier.init.shared::cta.b64 [%0], %1;", "mbarrier.init.shared::cta.b64 [%0], 1;"),
    ("mbarrier_init_fence()", "fence.mbarrier_init.release.cluster;", ""),
    ("mbarrier_init_fence()", "fence.proxy.async.shared::cta;", "fence.proxy.async.global;"),
    (COMING, "mbarrier.arrive.release.cta", "mbarrier.arrive.relaxed.cta"),
    (COMING, "mbarrier.arrive.release", "mbarrier.arrive_drop.release"),
    (EXPECTING, "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _,", "mbarrier.expect_tx.relaxed.cta.b64"),
    (EXPECTING, '"r"(bytes)\n               : "memory"', '"r"(bytes / 2)\n               : "memory"'),
    (PHASE, '"r"(phase & 1)', '"r"(phase)'),
    (PHASE, '"r"(phase & 1)', '"r"(~phase & 1)'),
    (PHASE, "try_wait.parity.acquire.cta", "try_wait.parity.relaxed.cta"),
    (PHASE, "mbarrier.try_wait.parity", "mbarrier.test_wait.parity"),
    (PHASE, "selp.u32 %0, 1, 0, p", "selp.u32 %0, 0, 1, p"),
    (PHASE, "%2, 1000;", "%2, 1000000000;"),
    (BULK, '"l"(global), "r"(bytes)', '"l"(global), "r"(16)'),
    (BULK, "evict_first", "evict_last"),
    (BULK, "evict_last", "evict_normal"),
    (BULK, "if (lines == L2::pass)", "if (lines == L2::keep)"),
    (BULK, "L2 lines = L2::pass", "L2 lines = L2::keep"),
    (BULK, "[%0], [%1], %2, [%3], %4;", "[%3], [%1], %2, [%0], %4;"),
    ("fence_proxy_async()", "fence.proxy.async;", "fence.proxy.alias;"),
    ("copy_wait()", '"n"(Newest)', '"n"(Newest + 1)'),
    ("thread_anew()", "%%tid.x", "%%tid.y"),
    (MULTIPLY_ADD, "m16n8k16.row.col.f32.bf16.bf16", "m16n8k16.row.col.f32.f16.f16"),
    (MULTIPLY_ADD, "{%4, %5, %6, %7}, {%8, %9}", "{%4, %6, %5, %7}, {%8, %9}"),
    (MULTIPLY_ADD, "{%4, %5, %6, %7}, {%8, %9}", "{%4, %5, %6, %7}, {%9, %8}"),
    (MULTIPLY_ADD, '"+f"(s[2]), "+f"(s[3])', '"+f"(s[3]), "+f"(s[2])'),
    (MULTIPLY_ADD, "word[i % 2 * 2 + 1]", "word[1]"),
    (MULTIPLY_ADD, "b[m * N + i / 2].word[i % 2 * 2]", "b[i / 2].word[i % 2 * 2]"),
    (MULTIPLY_ADD, "sum[0][j] + sum[1][j]", "sum[0][j]"),
    (MULTIPLY_ADD, "i < 2 * N; ++i", "i < N; ++i"),
    ("copy_wait()", "cp.async.wait_group %0", "cp.async.wait_group 0; // %0"),
    ("BlockMemory", "<= 48 << 10", "< 48 << 10"),
    ("SHARED_BYTES", "= sizeof(typename Kernel::Shared);", "= sizeof(Kernel);"),
    (
        "KERNEL_ENTRY",
        "state, waits}, BlockMemory<typename Kernel::Shared>::get(), steps)",
        "waits, state}, BlockMemory<typename Kernel::Shared>::get(), steps)",
    ),
    ("KERNEL_ENTRY", "__launch_bounds__(Threads, BlocksPerSm)", "__launch_bounds__(Threads)"),
    ("KERNEL_ENTRY", "::get(), steps);", "::get(), 1);"),
    (
        "STAGE_ENTRY",
        "run_stage<Kernel, Stage::S>({weights, cache, scratch, state, waits}",
        "run_stage<Kernel, Stage::S>({weights, cache, scratch, waits, state}",
    ),
    ("STAGE_ENTRY", "run_stage<Kernel, Stage::S>", "run_stage<Kernel, Stage::embed>"),
    ("STAGE_ENTRY", "__launch_bounds__(Threads)  ", "__launch_bounds__(1024)  "),
    *(
        _idle(*each)
        for each in (
            (STAMP, "mov.u64 %0, %%globaltimer;", ' : "=l"(now)', '::"memory"'),
            (
                ADD,
                "atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;",
                ' : "=r"(before) : "l"(word), "r"(value)',
                ' : "memory"',
            ),
            (ACQUIRE, "ld.acquire.gpu.global.u32 %0, [%1];", ' : "=r"(value) : "l"(word)', ' : "memory"'),
            (
                EXCHANGE,
                "atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;",
                ' : "=l"(before) : "l"(word), "l"(value)',
                ' : "memory"',
            ),
        )
    ),
)
