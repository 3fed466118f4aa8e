"""Ladder of the fast kernel: its steps, the figures of each, and the chapter of the journal that tells it."""

import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from made_records import evidence, lines, result, run, timed

from common import ROOT
from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import prefixes
from experiments.experiment import Experiment
from experiments.prediction import gpus
from experiments.prediction.predictor import Predictor
from experiments.report import ladder
from experiments.report.__main__ import RESULTS
from experiments.report.evidence import read
from experiments.report.figures import all_figures
from experiments.suite import predict
from experiments.tables.progress import Quiet


def predicted(*us: tuple[str, str, float]) -> dict:
    """Each (gpu, stack, us) from half to double the time."""
    names = ("gpu", "stack", "predicted us", "low us", "high us", "memory busy %")
    rows = [dict(zip(names, (*each, each[2] / 2, 2 * each[2], 50.0), strict=True)) for each in us]
    # Columns behind a figure on published rates.
    return result("predict", "predicted", [row | {"position": 1, "published tok/s": None} for row in rows])


def on(gpu: str, us: float, when: int, **about) -> dict:
    """A run of joint_heads on a GPU at position 1; about: what else its time says of itself."""
    row = timed("joint_heads", ["joint_heads"])
    (latency,) = row["latencies"]
    latencies = [latency | {"seconds": {"median": us / 1e6}} | about]
    row |= {"latencies": latencies, "device": row["device"] | {"gpu": gpu}}
    return row | {"id": f"on-{when}", "time": f"2026-01-01T00:00:{when:02}+00:00"}


HAND = predicted(("h200", "persistent", 800), ("h200", "baseline", 1000), ("h200", "joint_heads", 900))


def table_of(*records: dict) -> dict[str, dict]:
    return {line["step"]: line for line in lines(ladder.table(evidence(*records)))}


def test_steps_are_the_legal_beginnings_of_a_stack():
    """by_value needs joint_heads, and columns the ring."""
    found = prefixes(("by_value", "joint_heads", "columns", "bulk_ring"), read_catalog())
    assert found == (("by_value", "joint_heads"), ("by_value", "joint_heads", "columns", "bulk_ring"))


def test_every_variant_of_the_built_stack_is_in_one_step():
    some = evidence()
    first, second, *rest = ladder.steps(some)
    whole, _ = some.stack_of(ladder.design().built)
    assert (first.label, second.label, second.stack) == (ladder.design().stack, "baseline", ())
    assert " + ".join(step.label.partition(" = ")[0].removeprefix("+ ") for step in rest) == " + ".join(whole)
    assert rest[-1].stack == whole


def test_a_step_has_its_counts_against_the_step_below_and_its_interval():
    persistent = evidence().stack_of("persistent")[0]
    knobs = evidence()._stacks["persistent"].knobs
    counts = [run("baseline", [], 10), run("joint_heads", ["joint_heads"], 6)]
    lines = table_of(HAND, *counts, run("persistent", list(persistent), 4, knobs=knobs))
    barriers = [lines[step]["grid barriers"] for step in ("persistent", "baseline", "+ joint_heads")]
    assert barriers == ["4", "10", "6 (-4)"]
    assert lines["+ joint_heads"]["predicted us, H200"] == "900 [450, 1,800]"
    assert lines["+ joint_heads"]["memory busy, H200"] == "50 %"
    assert lines["+ joint_heads"]["predicted us, H100"] == "-"
    assert not any(name.startswith("measured") for name in lines["baseline"])


def test_what_is_not_predicted_is_named_and_has_no_bar():
    some = evidence(HAND)
    note = ladder.table(some).notes[-1]
    assert note.startswith("Not predicted yet: + by_value, ")
    assert "joint_heads" not in note
    (figure,) = (each for each in all_figures(some) if each.name == "ladder")
    words = [node.text for node in ElementTree.fromstring(figure.svg).iter() if node.text]
    assert figure.basis == "predicted"
    assert {"predicted, not measured", "800", "900", "+ joint_heads", "+ columns"} <= {*words}
    assert words.count("not predicted yet") == len(ladder.steps(some)) - 3
    assert "measured" not in words
    assert all(each.name != "ladder" for each in all_figures(evidence()))


def test_a_gpus_own_times_stand_beside_the_predictions():
    """The newest of its runs at the ladder's position; not another GPU's, nor one at another position."""
    here = [on("NVIDIA H200", 650, 1), on("NVIDIA H200", 640, 2), on("NVIDIA H100 80GB", 777, 3)]
    away, odd = on("NVIDIA H200", 5, 4, position=200), on("NVIDIA H200", 6, 5, verdict="IMPLAUSIBLE")
    some = evidence(HAND, *here, away, odd)
    of_step = {line["step"]: line for line in lines(ladder.table(some))}
    assert of_step["+ joint_heads"]["measured us, H200"] == "640.0"
    assert of_step["+ joint_heads"]["measured us, H100"] == "777.0"
    assert of_step["baseline"]["measured us, H200"] == "-"
    (figure,) = (each for each in all_figures(some) if each.name == "ladder")
    assert figure.basis == "measured"
    assert {"predicted, not measured", "measured"} <= {node.text for node in ElementTree.fromstring(figure.svg).iter()}
    assert {"on-2", "predict-predicted"} <= {*figure.records}


def test_the_experiment_predicts_each_step_and_leaves_out_what_it_cannot(configured, tmp_path: Path, monkeypatch):
    """A time of 1 us for each variant of a stack; no design, and no stack of three variants, can be predicted."""

    def made(self, variants, knobs, gpu, position):
        if len(variants) == 3:
            raise LabError("three are too many", "take two")
        return SimpleNamespace(low=0.0, high=1.0, rate=1.0, columns=lambda: {"predicted us": len(variants)})

    def unknown(self, *given):
        raise LabError("nothing is known of it", "count it")

    monkeypatch.setattr(Predictor, "predict", made)
    monkeypatch.setattr(Predictor, "kernel", unknown)
    options = ("options.gpus=[h100]", "options.variants=[baseline]", f"results={tmp_path}/r.jsonl")
    experiment = Experiment(configured("experiment=predict", *options), Quiet())
    times = {row["stack"]: row["predicted us"] for row in predict.ask(experiment).rows}
    steps = [step.key for step in ladder.steps(evidence())[2:]]
    assert [times.get(step) for step in steps] == [None if at == 3 else at for at in range(1, len(steps) + 1)]
    assert any(line.startswith(f"Left out: {steps[2]}: three are too many") for line in experiment.left_out)


def journal() -> str:
    return (ROOT / "DEVLOG.md").read_text()


def test_links_within_the_journal_lead_to_its_entries():
    heads = re.findall(r"^## (.+)$", journal(), re.MULTILINE)
    known = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    links = re.findall(r"\]\(#([^)]+)\)", journal())
    assert len(links) > 5
    assert {*links} <= known


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


def test_the_short_ladder_ends_at_the_share_of_the_read_floor():
    """595,984,384 weights and 2 positions of 114,688 B are 1,192.2 MB: 261 us at 95.1 % of 4.8 TB/s."""
    committed = read(sorted((ROOT / RESULTS).glob("*.jsonl")), read_catalog())
    table = ladder.summary(committed)
    steps = [row for row in lines(table) if row.get("grid barriers a token") is not None]
    barriers = [row["grid barriers a token"] for row in steps]
    assert barriers == sorted(barriers, reverse=True)
    below = {row["step"].partition("[")[2].partition("]")[0]: row for row in lines(table)[len(steps) :]}
    bits = {"int8:128": 8 + 16 / 128, "int4:128": 4 + 16 / 128}
    for row, each in [*((row, 16) for row in steps), *((below[form], bits[form]) for form in bits)]:
        us = float(row["predicted us a token"].replace(",", ""))
        floor = 1e6 * (each / 8 * 595_984_384 + 2 * 114_688) / gpus.read("h200").read_rate
        assert abs(float(row["of the read floor"].removesuffix(" %")) - 100 * floor / us) < 1
    assert "published gains" in table.notes[0]


def test_the_read_floor_is_of_the_gpu_whose_times_stand_beside_it():
    """1,192.2 MB at 4,800 and 3,350 GB/s, of which reading reaches 95 and 92 %."""
    committed = read(sorted((ROOT / RESULTS).glob("*.jsonl")), read_catalog())
    floors = {times.gpu: round(times.floor) for times in ladder.step_times(committed)}
    assert floors == {"H200": 261, "H100": 387}


def test_a_step_with_drafts_is_divided_by_the_tokens_that_it_keeps():
    made = predicted(("h200", "baseline", 1000), ("h200", "speculative", 800))
    rows = lines(ladder.summary(evidence(made | {"table": [row | {"error %": None} for row in made["table"]]})))
    none, whole = rows[-2:]
    assert (none["step"], whole["step"]) == tuple(
        f"[speculative](docs/drafts.md), {drafts} of 3 drafts right" for drafts in (0, 3)
    )
    assert (none["predicted us a token"], none["tok/s"]) == ("800", "1,250")
    assert (whole["predicted us a token"], whole["tok/s"]) == ("200", "5,000")


def test_goals_stand_below_the_predictions_of_their_positions():
    later = [dict(HAND["table"][2], position=1024), dict(HAND["table"][2], position=7)]
    first, *_, goal = lines(ladder.goals(evidence(HAND | {"table": HAND["table"] + later})))
    assert first["step"] == "+ joint_heads"
    assert [first[f"predicted us, position {position}"] for position in (1, 1024, 4096)] == ["900 [450, 1,800]"] * 2 + [
        "-"
    ]
    assert goal["predicted us, position 1"] == f"{1e6 / ladder.design().goals[1]:.0f}" == "286"
    assert set(first) == {"step", *(f"predicted us, position {position}" for position in ladder.design().goals)}
