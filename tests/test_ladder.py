"""Ladder of the fast kernel: its steps, and the figures of each."""

import re
from xml.etree import ElementTree

import pytest
from made_records import MODEL, evidence, lines, run, timed

from common import ROOT
from common.model.shapes import Model
from common.stacks.catalog import read_catalog
from common.stacks.stack import prefixes
from experiments.report import ladder
from experiments.report.__main__ import RESULTS
from experiments.report.evidence import read
from experiments.report.figures import all_figures
from experiments.report.timed import OPEN

LARGE = MODEL | {"name": ladder.MODEL}


def on(gpu: str, us: float, when: int, name: str = "joint_heads", **about) -> dict:
    """A run on a GPU at position 1; about: what else its time says of itself."""
    row = timed(name, [] if name == "baseline" else [name])
    (latency,) = row["latencies"]
    latencies = [latency | {"seconds": {"median": us / 1e6}} | about]
    row |= {"latencies": latencies, "device": row["device"] | {"gpu": gpu}, "model": LARGE}
    return row | {"id": f"on-{when}", "time": f"2026-01-01T00:00:{when:02}+00:00"}


def table_of(*records: dict) -> dict[str, dict]:
    """Lines of the table, by the variant of the step."""
    found = lines(ladder.summary(evidence(*records)))
    return {re.search(r"\[(\w+)\]", line["step"])[1]: line for line in found}


def test_steps_are_the_legal_beginnings_of_a_stack():
    """by_value needs joint_heads, and columns the ring."""
    found = prefixes(("by_value", "joint_heads", "columns", "bulk_ring"), read_catalog())
    assert found == (("by_value", "joint_heads"), ("by_value", "joint_heads", "columns", "bulk_ring"))


def test_every_variant_of_the_built_stack_is_in_one_step():
    some = evidence()
    labels, stacks = zip(*ladder.steps(some).items(), strict=True)
    whole, _ = some.stack_of(ladder.BUILT)
    assert (labels[0], stacks[0], stacks[-1]) == ("baseline", (), whole)
    assert " + ".join(label.partition(" = ")[0].removeprefix("+ ") for label in labels[1:]) == " + ".join(whole)


def test_a_step_has_its_counts_and_no_time_that_nobody_measured():
    found = table_of(run("baseline", [], 10), run("joint_heads", ["joint_heads"], 6))
    assert [found[step]["grid barriers a token"] for step in ("baseline", "joint_heads", "by_value")] == [10, 6, None]
    assert {line["measured us a token"] for line in found.values()} == {OPEN}
    assert {line["of the read rate"] for line in found.values()} == {"-"}


def test_a_time_is_the_newest_of_that_gpu_model_and_position():
    here = [on("NVIDIA H100 80GB", 650, 1), on("NVIDIA H100 80GB", 640, 2), on("NVIDIA H200", 777, 3)]
    away, odd = on("NVIDIA H100", 5, 4, position=200), on("NVIDIA H100", 6, 5, verdict="IMPLAUSIBLE")
    small = on("NVIDIA H100", 7, 6) | {"model": MODEL}
    counted = run("baseline", [], 10) | {"model": LARGE}
    found = table_of(*here, away, odd, small, counted)
    assert found["joint_heads"]["measured us a token"] == "640"
    assert found["baseline"]["measured us a token"] == OPEN
    floor = Model(**LARGE).bytes_per_token(1) / 3105e3
    assert found["joint_heads"]["of the read rate"] == f"{100 * floor / 640:.0f} %"


def test_the_picture_has_measured_bars_and_says_what_is_not_timed():
    one, two = on("NVIDIA H100", 640, 1), on("NVIDIA H100", 857, 2, "baseline")
    assert all(figure.name != "ladder" for figure in all_figures(evidence(one))), "one bar says nothing"
    some = evidence(one, two)
    (figure,) = (figure for figure in all_figures(some) if figure.name == "ladder")
    words = [node.text for node in ElementTree.fromstring(figure.svg).iter() if node.text]
    assert figure.basis == "measured"
    assert {"640", "857", "baseline", "+ joint_heads"} <= {*words}
    assert words.count(OPEN) == len(ladder.steps(some)) - 2
    assert {*figure.records} == {"on-1", "on-2"}


@pytest.mark.parametrize("ahead", [False, True])
def test_the_picture_of_the_ring_follows_its_rules(ahead):
    """A slot takes its next tile when the last one is multiplied; 2 come at once; stages have 3 tiles each."""
    page = (ROOT / "docs" / "fast-kernel.md").read_text()
    lines = re.search(r"```text\n(ahead=0.*?)\n```", page, re.DOTALL)[1].splitlines()
    middle = lines[0].index("ahead=1")
    rows = [line[middle:] if ahead else line[8:middle] for line in lines[1:]]
    *slots, warps = (row.rstrip() for row in rows)
    ticks = range(len(warps))
    coming = [sum(slot.ljust(len(warps))[at] == ">" for slot in slots) for at in ticks]
    assert max(coming) == 2
    assert any(coming[at] for at in ticks if warps[at] == "x") == ahead, "memory works on while the warps wait"
    assert [tile for tile in warps if tile.isdigit()] == list("012345678")
    assert re.split("x+", re.sub("-", "", warps)) == ["012", "345", "678"]
    begun = {}
    for number, slot in enumerate(slots):
        tiles = re.fullmatch(r"(\.*>{4}=*\d)+\.*", slot) and re.findall(r"\d", slot)
        assert tiles == [str(tile) for tile in range(number, 9, 4)]
        for tile, begin in zip(tiles, re.finditer(r">{4}", slot), strict=True):
            begun[int(tile)] = begin.start()
            assert warps[slot.index(tile)] == tile
    assert sorted(begun, key=begun.get) == list(range(9)), "in the order of use"
    for tile, at in begun.items():
        assert ahead or at >= max((warps.index(str(each)) for each in range(tile // 3 * 3)), default=-1)


def test_the_committed_ladder_has_fewer_barriers_at_each_step_and_the_share_of_the_read_rate():
    """595,984,384 weights and 2 positions of 114,688 B are 1,192.2 MB: 384 us at 3,105 GB/s."""
    committed = read(sorted((ROOT / RESULTS).glob("*.jsonl")), read_catalog())
    table = ladder.summary(committed)
    barriers = [row["grid barriers a token"] for row in lines(table)]
    assert barriers == sorted(barriers, reverse=True)
    timed_ = [row for row in lines(table) if row["measured us a token"] != OPEN]
    assert timed_
    for row in timed_:
        share = float(row["of the read rate"].removesuffix(" %"))
        assert abs(share - 100 * 383.96 / float(row["measured us a token"].replace(",", ""))) < 1
    assert "takes 384 us" in table.notes[0]
