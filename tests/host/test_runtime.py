"""Runtime of the host device: it follows CUDA's execution model and reports a kernel that breaks its rules."""

from itertools import combinations

import numpy as np
import pytest
import torch

from common.errors import CompileError, Crashed, Hung

pytestmark = pytest.mark.host


def test_barrier_that_one_thread_misses_is_reported(launch):
    with pytest.raises(Hung, match=r"no block can continue: block 0: .* waiting at a block barrier at test:1") as hung:
        launch("if (port::thread() != 5) port::block_barrier();", timeout=300)
    assert "63 threads (first 0) waiting at a block barrier at test:1" in hung.value.report
    assert "1 thread (first 5) ended" in hung.value.report


def test_grid_barrier_that_one_block_misses_is_reported(launch):
    with pytest.raises(Hung) as hung:
        launch("port::mark(Stage::o_proj, 1); if (port::block() != 1) grid_barrier(c, Stage::o_proj, 1);", timeout=300)
    assert "block 0" in hung.value.report
    assert "block 2" in hung.value.report
    assert "spinning at common/kernel/barrier.cuh" in hung.value.report
    assert "stage o_proj, layer 1" in hung.value.report
    assert "1 of 3 blocks ended" in hung.value.report


def test_shuffle_that_one_lane_misses_is_reported(launch):
    with pytest.raises(Hung) as hung:
        launch("if (port::thread() != 40) out[0] = port::shuffle_xor(1.0f, 1);", timeout=300)
    assert "31 threads (first 32) waiting at a shuffle" in hung.value.report


def test_endless_loop_times_out(launch):
    with pytest.raises(Hung, match=r"still running after 0\.5 s: block [012]: .* ready"):
        launch("volatile int i = 0; while (true) i = i + 1;", timeout=0.5)


def test_write_before_shared_memory_is_reported(launch):
    with pytest.raises(Crashed, match="block 2 wrote outside its shared memory"):
        launch("if (port::block() == 2) (&s.unused)[-1] = 7;")


def test_misaligned_wide_load_is_reported(launch):
    with pytest.raises(Crashed, match="misaligned access at test:1"):
        launch("out[0] = bf16_low(port::load_weights<16>(c.weights + 4).word[0]);")


@pytest.mark.parametrize(
    ("access", "offset", "size"),
    [
        ("port::load<Data::activations, 16>(s.a + 3)", 12, 28),
        ("port::copy_async<16>(s.a + 3, c.weights)", 12, 28),
        ("port::store_packet<8>(s.a + 1, {})", 4, 12),
        ("port::mbarrier_init(reinterpret_cast<Mbarrier *>(s.a + 1), 1)", 4, 12),
    ],
)
def test_alignment_in_shared_memory_counts_from_its_start(launch, access, offset, size):
    """A GPU's shared memory begins at a multiple of 16; here it ends at a page, so these addresses look aligned."""
    assert offset % 8 == size % 8
    with pytest.raises(Crashed, match="misaligned access at test:1"):
        launch(f"{access};", shared=f"float a[{size // 4 - 1}];")


def test_the_start_of_shared_memory_is_aligned_whatever_its_size(launch):
    session = launch(
        "s.a[0] = 2; const auto x = port::load<Data::activations, 16>(s.a); out[0] = port::as_float(x.word[0]);",
        shared="float a[6];",
    )
    assert session.scratch()[0] == 2


def test_trap_names_its_place(launch):
    with pytest.raises(Crashed, match=r"trap at test:1 by thread 3"):
        launch("if (port::block() == 0 && port::thread() == 3) port::trap();")


UNWRITTEN = "out[port::block() * 64 + port::thread()] = s.a[port::thread()]; s.a[port::thread()] = 1;"


def test_everything_unwritten_is_a_nan_of_its_own_in_every_launch(launch, seed):
    """Threads that read it cannot agree on what it holds, and nothing is left of an earlier launch."""
    session = launch(UNWRITTEN, shared="float a[64];", seed=seed)
    seen = [session.scratch()]
    session.reset([1], 0)
    session.run()
    seen.append(session.scratch())
    assert all(each.isnan().all() for each in seen)
    assert session.cache.written(0) is None
    blocks = [words for each in seen for words in each[: 3 * 64].view(3, 64).view(torch.int32).tolist()]
    assert all(len(set(words)) == 64 for words in blocks)
    assert all(words != others for words, others in combinations(blocks, 2))
    assert torch.tensor(blocks, dtype=torch.int32).view(torch.bfloat16).isnan().all(), "as entries of the cache, too"


@pytest.mark.parametrize(("newest", "landed"), [(0, 2), (1, 1)])
def test_copies_land_at_their_wait_and_not_before(launch, newest, landed):
    session = launch(
        f"""if (port::thread() != 0 || port::block() != 0) return;
        port::copy_async<16>(s.tile[0], c.weights); port::copy_commit();
        port::copy_async<16>(s.tile[1], c.weights + 8); port::copy_commit();
        out[0] = bf16_low(s.tile[0][0]); out[1] = bf16_low(s.tile[1][0]);
        port::copy_wait<{newest}>();
        out[2] = bf16_high(s.tile[0][0]); out[3] = bf16_high(s.tile[1][0]); port::copy_wait<0>();""",
        shared="alignas(16) unsigned tile[2][4];",
    )
    out = session.scratch()[:4]
    assert out[:2].isnan().all()
    assert out[2] == 1  # weights count 0, 1, 2, ...
    assert bool(out[3] == 9) if landed == 2 else bool(out[3].isnan())
    assert session.counts().total("copied_async") == 32


@pytest.mark.parametrize("commit", ["", "port::copy_commit();"])
def test_a_copy_that_its_thread_does_not_wait_for_is_reported(launch, commit):
    body = f"if (port::thread() != 3) return;\nport::copy_async<16>(s.tile, c.weights); {commit}"
    with pytest.raises(Crashed, match="a copy is under way when its thread ends: it was issued at test:2 by thread 3"):
        launch(body, shared="alignas(16) unsigned tile[4];")


def test_two_copies_in_flight_into_one_place_are_reported(launch):
    body = """if (port::thread() != 0) return;
        port::copy_async<16>(s.tile, c.weights); port::copy_commit();
        port::copy_async<8>(s.tile + 2, c.weights); port::copy_commit();"""
    with pytest.raises(Crashed, match="two copies in flight to overlapping targets at test:3"):
        launch(body, shared="alignas(16) unsigned tile[4];")


def test_shuffles_exchange_within_the_warp(launch):
    session = launch(
        """const float got = port::shuffle_xor(float(port::thread()), 5);
        if (port::block() == 1) out[port::thread()] = got;"""
    )
    assert session.scratch()[:64].tolist() == [float(t ^ 5) for t in range(64)]
    assert session.counts().total("shuffles") == 2 * 3  # a warp's shuffle is one


NAMED = """if (port::block() != 0) return;
    if (warp() == 1) {{ s.a[lane()] = lane(); port::named_arrive(1, {arrive}); }}
    else {{ port::named_sync(1, {sync}); out[lane()] = s.a[lane() ^ 1]; }}"""


def test_named_barrier_lets_its_number_through(launch):
    """Warp 0 waits until warp 1 has arrived; warp 1 does not wait: bar.sync and bar.arrive."""
    session = launch(NAMED.format(arrive=64, sync=64), shared="float a[32];")
    assert session.scratch()[:32].tolist() == [float(t ^ 1) for t in range(32)]


def test_named_barrier_short_of_a_warp_is_reported(launch):
    with pytest.raises(Hung) as hung:
        launch(NAMED.format(arrive=96, sync=96), shared="float a[32];")
    assert "32 threads (first 0) waiting at a named barrier" in hung.value.report


def test_named_barrier_with_two_opinions_is_reported(launch):
    with pytest.raises(Crashed, match="disagree about how many"):
        launch(NAMED.format(arrive=64, sync=96), shared="float a[32];")


def test_loads_from_shared_memory_are_counted_apart(launch):
    session = launch(
        "s.a[port::thread()] = 1; out[port::thread()] = port::load_activation(s.a + port::thread());", "float a[64];"
    )
    assert session.counts().bytes_by_width("shared") == {32: 4 * 3 * 64}
    assert session.counts().loaded("activations") == 0


def test_counts_are_exact(launch):
    """By hand: 3 blocks of 64 threads; every line below is executed by each thread."""
    session = launch(
        """port::mark(Stage::qkv, 0);
        port::load_weights<8>(c.weights); port::load_weights<16>(c.weights); port::load_weight(c.weights);
        port::load<Data::kv, 4>(c.cache); port::load<Data::activations, 16>(out + 64);
        port::mark(Stage::down, 1);
        port::store_activation(out + port::thread(), 1); port::store_kv(c.cache + port::thread(), 1);
        port::block_barrier(); grid_barrier(c, Stage::down, 1);"""
    )
    threads, counts = 3 * 64, session.counts()
    assert counts.bytes_by_width("weights", "qkv") == {16: 2 * threads, 64: 8 * threads, 128: 16 * threads}
    assert counts.bytes_by_width("kv") == {32: 4 * threads}
    assert counts.bytes_by_width("activations") == {128: 16 * threads}
    assert counts.of("down", "stored_activations") == 4 * threads
    assert counts.of("down", "stored_kv") == 2 * threads
    assert counts.of("down", "grid_barriers") == 1
    assert counts.of("down", "block_barriers") == 3 * (1 + 2)
    assert counts.of("down", "atomics") == 3
    assert set(counts.as_dict()) == {"qkv", "down"}


PUBLISH = """if (port::thread() != 0 || port::block() > 1) return;
    float *mine = out + 512 * port::block(), *other = out + 512 * (1 - port::block());
    for (int i = 0; i < 400; ++i) port::publish(mine + i, i);
    int there = 0;
    while (there < 400 && port::look(other + (there & ~3)).word[there & 3] == unsigned(there)) ++there;
    out[1024 + port::block()] = float(there);"""


def test_another_block_may_run_between_two_words_that_a_block_publishes(launch):
    """One worker: without it, a block that publishes would be seen with all of its words or with none."""
    seen = [n for seed in range(4) for n in launch(PUBLISH, seed=seed).scratch()[1024:1026].tolist()]
    assert any(0 < n < 400 for n in seen), seen


ORDER = """float mine = float(__atomic_fetch_add(c.state + state_at::token, 1, __ATOMIC_SEQ_CST));
    out[port::block() * 64 + port::thread()] = mine; port::block_barrier();"""


def test_order_is_a_function_of_the_seed(launch, seed):
    def order(n: int) -> np.ndarray:
        return launch(ORDER, seed=n).scratch()[: 3 * 64].numpy()

    first = order(seed)
    assert (first == order(seed)).all(), seed
    others = [order(seed + n) for n in range(1, 6)]
    assert any((first.argsort() // 64 != other.argsort() // 64).any() for other in others), "blocks in another order"
    assert any((first[:64].argsort() != other[:64].argsort()).any() for other in others), "threads in another order"


def test_warning_is_an_error(launch):
    with pytest.raises(CompileError, match="unused variable"):
        launch("int never = 0;")


def test_what_the_compiler_says_names_files_from_the_root_of_the_lab(launch):
    """Records keep it: it names no folder of the machine."""
    with pytest.raises(CompileError, match=r"failed: common/devices/host/runtime/\S+: error: .*32, 64 or 128 bits"):
        launch("out[0] = port::load_weights<3>(nullptr).word[0];")


def test_rounding_to_bf16_is_to_nearest_even_and_keeps_nan(launch):
    """Torch's rounding of 4,096 bit patterns, first ties, infinities and NaNs."""
    special = [0x3F808000, 0x3F818000, 0x3F807FFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF]
    cases = "".join(f"case {number}: bits = {bits:#x}u; break; " for number, bits in enumerate(special))
    session = launch(
        "if (port::block() != 0) return; for (int i = port::thread(); i < 4096; i += block_threads) {"
        f"unsigned bits = i * 2654435761u; switch (i) {{ {cases} default: break; }}"
        "out[i] = port::as_float(unsigned(to_bf16(port::as_float(bits))) << 16); }"
    )
    patterns = np.arange(4096, dtype=np.uint32) * np.uint32(2654435761)
    patterns[: len(special)] = special
    want = torch.from_numpy(patterns.view(np.float32)).bfloat16().float()
    assert want[:4].tolist() == [1.0, 1.015625, 1.0, float("inf")]
    torch.testing.assert_close(session.scratch()[:4096], want, rtol=0, atol=0, equal_nan=True)
