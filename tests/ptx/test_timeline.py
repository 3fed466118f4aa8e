"""Timestamps of a traced kernel: where they are written, the table made of them, and no cost for other kernels."""

import json

import pytest
import torch

from common.compile.nvrtc import compile_ptx
from common.compile.source import build
from common.model.layout import MAX_BLOCKS, MOMENTS
from common.model.stages import LAYER_STAGES, STAGES
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from experiments.run.timeline import UNWRITTEN, read, summary, timeline
from profiles.timeline import by_stage, chrome_trace, draw, order, reading

BLOCKS = 5


@pytest.fixture
def trace(tiny, seed, synthetic, open_session):
    """trace(stack): the timeline of one step on the PTX device."""

    def run(*names: str):
        catalog = read_catalog()
        (stack,) = choose_stacks(catalog, "", names, {}, 256)
        known = [catalog.variants[name] for name in stack.variants]
        source = build(known, tiny, knobs={**stack.knobs, **KNOBS}, trace=True)
        session = open_session(source, synthetic(tiny, seed), BLOCKS, seed)
        session.reset([3], 0)
        session.run(1)
        return read(session, "+".join(names) or "baseline", "ptx")

    return run


KNOBS = {"vec128": {"l1": "default"}, "graph": {"how": "launches"}}


def test_every_block_writes_timestamps_for_every_stage_and_layer(trace, tiny):
    spans = trace().spans
    seen = {(row.stage, row.layer, row.block) for row in spans.itertuples()}
    layered = {(stage, layer) for stage in LAYER_STAGES for layer in range(tiny.layers)}
    single = {(stage, 0) for stage in ("embed", "final_norm", "lm_head", "argmax")}
    assert seen == {(*each, block) for each in layered | single for block in range(BLOCKS)}
    assert len(spans) == len(seen)


def test_no_block_passes_a_barrier_before_all_have_ended_the_stage(trace):
    spans = trace().spans
    assert (spans["begin"] <= spans["end"]).all()  # one moment for a block without rows
    for _, rows in spans[spans["stage"] != "argmax"].groupby(["stage", "layer"]):
        assert rows["passed"].min() >= rows["end"].max()


def test_a_stage_without_a_barrier_after_it_has_no_wait(trace):
    spans = trace("redundant_rmsnorm").spans
    free = spans[spans["stage"].isin(("input_norm", "post_norm"))]
    kept = spans[spans["stage"] == "qkv"]
    assert any(rows["passed"].min() < rows["end"].max() for _, rows in free.groupby(["stage", "layer"]))
    assert all(rows["passed"].min() >= rows["end"].max() for _, rows in kept.groupby("layer"))


BY_VALUE = ("qkv", "attention", "o_proj", "gate_up", "down")


@pytest.mark.parametrize("more", [("folded_norm",), ("folded_norm", "counted_sums"), ("bulk_ring", "columns")])
def test_a_block_waits_for_results_by_value_until_it_has_its_part(trace, more):
    """The wait is inside of a later stage, and no work of it."""
    spans = trace("joint_heads", "by_value", *more).spans
    waited = {*spans.loc[spans["passed"] > spans["end"], "stage"]} & {*BY_VALUE}
    assert len(waited) >= 3, "of five stages, each with several blocks"
    for _, rows in spans.groupby("block"):
        before = rows["passed"].cummax().shift(fill_value=0)
        assert ((rows["begin"] >= before) | (rows["begin"] == rows["end"])).all()


def test_a_kernel_without_trace_reads_no_clock(tiny):
    plain, traced = (build([read_catalog().variants["vec128"]], tiny, knobs=KNOBS, trace=on) for on in (False, True))
    assert "Traced" not in plain.text
    assert "stamp(" not in plain.text
    assert "stamp(" in traced.text
    assert "globaltimer" not in compile_ptx(plain.text, "sm_90")
    assert "globaltimer" in compile_ptx(traced.text, "sm_90")


def hand_made() -> torch.Tensor:
    """Two blocks, two stages of layer 0, in ns: block 0 works 30 and 10, block 1 10 and 20; embed has a barrier."""
    table = torch.full((len(STAGES), 2, MAX_BLOCKS, MOMENTS), UNWRITTEN, dtype=torch.int64)
    base = 1_700_000_000_000_000_000
    embed, argmax = STAGES.index("embed"), STAGES.index("argmax")
    table[embed, 0, 0] = torch.tensor([base, base + 30, base + 40])
    table[embed, 0, 1] = torch.tensor([base + 10, base + 20, base + 40])
    table[argmax, 0, 0, :2] = torch.tensor([base + 40, base + 50])
    table[argmax, 0, 1, :2] = torch.tensor([base + 40, base + 60])
    return table.view(torch.float32).flatten()


def test_the_table_has_the_mean_and_the_slowest_block():
    found = timeline(hand_made(), 2, "by hand", "ns")
    rows = by_stage(found).set_index("stage").T.to_dict("list")
    assert rows["embed"] == [2, 20.0, 30, 15.0, pytest.approx(100 * 15 / 35)]
    assert rows["argmax"] == [2, 15.0, 20, 0.0, 0.0]
    assert rows["all stages"] == [2, 35.0, 40, 15.0, pytest.approx(30.0)]
    assert "waits 30 % of the step" in reading(found)


def test_work_begins_when_a_result_by_value_is_there():
    """A block ends embed at 30 and has its result at 50, in argmax, begun at 35; final_norm between them is no work."""
    table = torch.full((len(STAGES), 1, MAX_BLOCKS, MOMENTS), UNWRITTEN, dtype=torch.int64)
    for stage, begin, end, passed in (("embed", 0, 30, 50), ("final_norm", 31, 32, 32), ("argmax", 35, 60, 60)):
        table[STAGES.index(stage), 0, 0] = 10**18 + torch.tensor([begin, end, passed])
    parts = timeline(table.view(torch.float32).flatten(), 1, "by hand", "ns").parts.set_index("stage")
    assert parts[["work", "wait"]].T.to_dict("list") == {"embed": [30, 20], "final_norm": [0, 0], "argmax": [10, 0]}


def test_a_step_that_wrote_no_timestamp_has_an_empty_table():
    unwritten = torch.full((len(STAGES), 2, MAX_BLOCKS, MOMENTS), UNWRITTEN, dtype=torch.int64)
    found = timeline(unwritten.view(torch.float32).flatten(), 2, "by hand", "ordinal")
    assert found.spans.empty
    assert by_stage(found).empty


def test_ordinal_timestamps_give_an_order_and_no_share_of_waiting(trace, tiny):
    found = trace("redundant_rmsnorm")
    table = by_stage(found).set_index("stage")
    # The stages of one token in the order of the model; a barrier after each but the ones that the variant repeats, and
    # the kernel's end.
    assert list(table.index) == list(STAGES)
    free = ("input_norm", "post_norm")
    assert list(table.index[table["synchronized after it"] == "no"]) == list(free)
    assert all(table.loc[stage, "layers"] == (tiny.layers if stage in LAYER_STAGES else 1) for stage in STAGES)
    assert set(table["blocks"]) == {BLOCKS}
    assert set(table["which blocks"]) == {"0-4"}
    shown = f"{table.to_string()}\n{reading(found)}"
    assert "%" not in shown
    assert "work (" not in shown
    assert "waiting (" not in shown
    assert "a timestamp is only an ordinal" in reading(found)


def test_the_clock_goes_on_from_one_launch_to_the_next(trace):
    table = by_stage(trace("graph"))
    assert list(table["stage"]) == list(STAGES)
    assert set(table["synchronized after it"]) == {"yes"}, "a kernel for each stage, which ends before the next begins"


def test_a_block_that_goes_on_early_shows_that_nothing_synchronizes():
    table = hand_made().view(torch.int64).view(len(STAGES), 2, MAX_BLOCKS, MOMENTS)
    embed, argmax = STAGES.index("embed"), STAGES.index("argmax")
    table[embed, 0, :2, 2] = UNWRITTEN  # the end of a kernel, so that block 0 began argmax 10 ns after the last end
    for early, shown in ((0, "yes"), (15, "no")):
        table[argmax, 0, 1, 0] -= early  # 25: before block 0 has ended embed
        found = timeline(table.view(torch.float32).flatten(), 2, "by hand", "ordinal")
        assert list(order(found)["synchronized after it"]) == [shown, "yes"]


def test_stages_are_ordered_by_their_timestamps():
    table = hand_made().view(torch.int64).view(len(STAGES), 2, MAX_BLOCKS, MOMENTS)
    argmax = STAGES.index("argmax")
    table[argmax, 0, 3] = table[argmax, 0, 0]
    table[argmax, 0, [0, 1, 3], :2] -= 1000  # before embed
    found = timeline(table.view(torch.float32).flatten(), 2, "by hand", "ordinal")
    assert order(found).to_dict("split")["data"] == [["argmax", 1, 3, "0-1, 3", "yes"], ["embed", 1, 2, "0-1", "yes"]]


def test_files_of_ordinal_timestamps_show_no_waiting(tmp_path, trace):
    found = trace()
    chrome_trace(found, tmp_path / "timeline.json")
    draw(found, tmp_path / "timeline.svg")
    for name in ("timeline.json", "timeline.svg"):
        assert "wait" not in (tmp_path / name).read_text(), name


def test_the_trace_has_the_format_of_perfetto(tmp_path):
    chrome_trace(timeline(hand_made(), 2, "by hand", "ns"), tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {"block 0", "block 1"}
    assert {(event["name"], event["tid"], event["ts"], event["dur"]) for event in slices} == {
        ("embed", 0, 0, 0.03),
        ("wait after embed", 0, 0.03, 0.01),
        ("embed", 1, 0.01, 0.01),
        ("wait after embed", 1, 0.02, 0.02),
        ("argmax", 0, 0.04, 0.01),
        ("argmax", 1, 0.04, 0.02),
    }


def test_the_figure_is_reproducible(tmp_path, trace):
    found = trace()
    for name in ("a.svg", "b.svg"):
        draw(found, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "qk_norm_rope" in text


def test_the_figure_of_times_shows_waiting_blocks(tmp_path):
    draw(timeline(hand_made(), 2, "by hand", "ns"), tmp_path / "a.svg")
    assert "waiting" in (tmp_path / "a.svg").read_text()


def test_a_summary_has_medians_over_blocks_and_layers():
    """Layers begin at 0, 100 and 220; work of 10, 30 and 50 by two blocks, waits of 5, but 25 once."""
    table = torch.full((len(STAGES), 3, MAX_BLOCKS, MOMENTS), UNWRITTEN, dtype=torch.int64)
    first, last = (STAGES.index(name) for name in (LAYER_STAGES[0], "argmax"))
    for layer, (begin, work, wait) in enumerate(((0, 10, 5), (100, 30, 5), (220, 50, 25))):
        for block in (0, 1):
            at = 10**18 + begin + 40 * block
            table[first, layer, block] = torch.tensor([at, at + work, at + work + wait])
    table[last, 0, 0, :2] = torch.tensor([10**18 + 400, 10**18 + 407])  # no barrier follows
    found = summary(timeline(table.view(torch.float32).flatten(), 3, "by hand", "ns"))
    assert found == {
        "stages": [
            {"stage": LAYER_STAGES[0], "work_ns": 30.0, "wait_ns": 5.0},
            {"stage": "argmax", "work_ns": 7.0, "wait_ns": 0.0},
        ],
        "layer_ns": 110.0,
    }
    one = summary(timeline(table[:, :1].contiguous().view(torch.float32).flatten(), 1, "by hand", "ns"))
    assert one["layer_ns"] is None
