"""Grid barrier that times out: a block writes where it waited to `waits`, which the host reads after the trap."""

import dataclasses
import re
import subprocess

import pytest
import torch
from composed import Composed
from processes import HANGS_S

from common.compile.source import KERNEL, flatten
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.errors import Hung
from common.model.layout import WAIT_WORDS

pytestmark = pytest.mark.covers

LIMIT = "constexpr unsigned spin_limit = 1u << 25;"


@pytest.mark.cpu
@pytest.mark.parametrize("stack", [(), ("atomic_barrier",)], ids=["baseline", "atomic_barrier"])
def test_kernel_that_times_out_reports_where(open_session, synthetic, tiny, stack, seed):
    """With a limit of no polls, the first block that has to wait times out; the schedule decides at which barrier."""
    source = Composed(stack).source(tiny)
    assert source.text.count(LIMIT) == 1
    hasty = dataclasses.replace(source, text=source.text.replace(LIMIT, "constexpr unsigned spin_limit = 0;"))
    session = open_session(hasty, synthetic(tiny, seed), blocks=3, schedule=seed)
    session.reset([1], 0)
    with pytest.raises(Hung, match=r"a grid barrier timed out: 1 block \([012]\) waited after \w+, layer \d") as hung:
        session.run()
    assert "2 blocks (" in hung.value.report.splitlines()[1]


POLL, NEVER = "spin_until(arrived,", "at_once([&] { return false; },"
AT_ONCE = """template <class Done, class Report> DEVICE void at_once(Done done, Report report) {
  if (!done()) report(), trap();
}
"""
MAIL = ("joint_heads", "folded_norm", "by_value")
WAITS = {  # variants, the comment before the wait, the call of the wait, its call without polls, and the report
    "values": (Composed(MAIL), "// Waits for `Packets`", POLL, "at_once(arrived,",
               "values did not arrive: {} for element {} of qkv, layer 0"),
    "sums": (Composed((*MAIL, "counted_sums")), "// Waits for the sums of", POLL, NEVER,
             "values did not arrive: {} for element {} of o_proj, layer 0"),
    "a phase": (Composed(("bulk_ring",), {"slots": 2, "window": 2}), "// Waits until phase[n] of",
                "spin_until(complete,", NEVER,
                "a barrier in shared memory timed out: {} in shared memory for phase 0 of the barrier at byte {}"),
}  # fmt: skip


@pytest.mark.cpu
@pytest.mark.parametrize("what", WAITS)
def test_what_does_not_come_is_reported(what, open_session, synthetic, tiny, seed):
    """The first block that has to wait gives up at once, so that a missing value is a result of the first layer."""
    composed, comment, wait, given_up, said = WAITS[what]
    source = composed.source(tiny)
    before, after = source.text.split(comment)
    assert after.count(wait) == 1
    text = f"{before}{AT_ONCE}//{after.replace(wait, given_up)}"
    session = open_session(dataclasses.replace(source, text=text), synthetic(tiny, seed), blocks=3, schedule=seed)
    session.reset([1], 0)
    with pytest.raises(Hung, match=said.format(r"1 block \([012]\) waited", r"\d+")):
        session.run()


@pytest.mark.cpu
def test_a_value_that_is_never_published_is_a_deadlock(open_session, synthetic, tiny, seed):
    """Found exactly, without a limit of polls: every block waits, and no word was published since it polled."""
    source = Composed(MAIL).source(tiny)
    old, new = "if constexpr (mailed(S)) send", "if (mailed(S) && (S != Stage::gate_up || i != 37)) send"
    assert source.text.count(old) == 1
    session = open_session(dataclasses.replace(source, text=source.text.replace(old, new)), synthetic(tiny, seed), 3)
    session.reset([1], 0)
    with pytest.raises(Hung, match="deadlock, no block can continue") as hung:
        session.run()
    polls = r"polls common/kernel/barrier.cuh:\d+ \(from common/kernel/mail.cuh:\d+, variants/by_value.cu:\d+\)"
    assert re.search(polls, hung.value.cause), hung.value.report  # not those that wait for lanes or at a block barrier


# A machine of one thread and a clock of waiting costs: a load of the barrier's word, and a pause.
CLOCK = r"""
#include <cstdio>
#include <cstdlib>
#define DEVICE inline
#define ROLLED
#define UNROLL
enum class Stage { embed };
constexpr int wait_words = 4;
namespace state_at { constexpr int arrived = 0, epoch = 1; }
using Mbarrier = unsigned long long;
struct Context { unsigned *state, *waits; void *shared; };
unsigned long long now = 0, reported = 0;
unsigned state[2], waits[4];
struct Number { unsigned x; };
constexpr Number threadIdx{0}, blockIdx{0}, gridDim{2};
void block_barrier() {}
unsigned add_acq_rel(unsigned *word, unsigned value) { unsigned before = *word; *word += value; return before; }
void store_release(unsigned *word, unsigned value) { *word = value; }
void tick(int cost) { now += cost; if (!reported && waits[0]) reported = now; }
unsigned load_acquire(const unsigned *word) { tick(20); return *word; }
void __nanosleep(unsigned) { tick(1); }
bool mbarrier_try_wait(Mbarrier *, unsigned) { return false; }
[[noreturn]] void trap() { printf("%llu %llu\n", reported, now); exit(0); }
"""


@pytest.mark.cpu
def test_others_get_as_long_to_report_as_the_first_block_waited(tmp_path):
    """One block of two arrives. From its report to its trap passes as much time as it waited before."""
    include = {(KERNEL / name).resolve() for name in ("params.cuh", "device.cuh", "asm.cuh", "entry.cuh")}
    text = "\n".join([CLOCK, *flatten(KERNEL / "barrier.cuh", include)])
    main = "int main() { Context c{state, waits}; grid_barrier(c, Stage::embed, 0); }\n"
    (tmp_path / "wait.cpp").write_text(text.replace(LIMIT, "constexpr unsigned spin_limit = 1u << 16;") + "\n" + main)
    subprocess.run(["g++", "-std=c++17", "-o", tmp_path / "wait", tmp_path / "wait.cpp"], check=True)
    reported, trapped = map(int, subprocess.check_output([tmp_path / "wait"], timeout=HANGS_S).split())
    assert 0 < 0.99 * reported < trapped - reported


def words(blocks: int, **places: tuple[int, int, int, int]) -> torch.Tensor:
    waits = torch.zeros(blocks + 1, WAIT_WORDS, dtype=torch.int32)  # the buffer is longer than the grid
    for block, row in places.items():
        waits[int(block[1:])] = torch.tensor(row, dtype=torch.int32)
    return waits.flatten()


def test_no_block_timed_out():
    raise_if_barrier_timed_out(words(3), 3)


@pytest.mark.parametrize("stray", [13, 5000, -5, -1, 1 << 17 | 1 << 16, (1 << 16) + 13])
def test_words_of_a_stray_write_are_no_report(stray):
    raise_if_barrier_timed_out(words(3, b1=(stray, 1, 2, 3)), 3)


def test_report_has_a_line_for_each_barrier():
    down, qkv = 1 + 8, 1 + 2  # stages count from 0: embed, input_norm, qkv, ... down
    waits = words(5, b0=(down, 1, -0x7FFFFFFF, 7), b2=(down, 1, -0x7FFFFFFF, 7), b3=(qkv, 1, 3, 7))
    with pytest.raises(Hung) as hung:
        raise_if_barrier_timed_out(waits, 5)
    assert hung.value.report.splitlines() == [
        "2 blocks (0, 2) waited after down, layer 1 (arrived 0x80000001, epoch 7)",
        "1 block (3) waited after qkv, layer 1 (arrived 0x00000003, epoch 7)",
        "2 blocks (1, 4) reported no wait",
    ]


def test_missing_values_are_named():
    """By the block that waits, with the element, the stage and the layer."""
    waits = words(3, b1=((1 + 7) | 1 << 16, 0, 37, 0))
    with pytest.raises(Hung, match=r"values did not arrive: 1 block \(1\) waited for element 37 of gate_up, layer 0"):
        raise_if_barrier_timed_out(waits, 3)


def test_long_lists_are_cut():
    waits = torch.tensor([1, 0, 0, 0] * 20, dtype=torch.int32)
    with pytest.raises(Hung, match=r"20 blocks \(0, 1, .*, 15, \.\.\.\) waited after embed, layer 0"):
        raise_if_barrier_timed_out(waits, 20)
