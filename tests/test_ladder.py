"""Measured table: the steps to the fast kernel, and what records may say of each."""

import json
import re
import statistics

import pytest
from made_records import MODEL, ORIGIN, evidence, lines, timed

from common import ROOT
from common.model.shapes import Model
from common.stacks.catalog import read_catalog
from common.stacks.stack import prefixes
from experiments.report.__main__ import RESULTS
from experiments.report.measured import FAST, OPEN, RIVAL, measured, steps, table

DAY = "2026-01-01"


def on(gpu: str, us: float, when: int, name: str = "joint_heads", **about) -> dict:
    """A run on a GPU at position 1; about: what else its time says of itself."""
    row = timed(name, [] if name == "baseline" else [name])
    (latency,) = row["latencies"]
    latencies = [latency | {"seconds": {"median": us / 1e6}} | about]
    row |= {"latencies": latencies, "device": row["device"] | {"gpu": gpu}}
    return row | {"id": f"on-{when}", "time": f"{DAY}T00:00:{when:02}+00:00"}


def generation(engine: str, *us: float, by: str = "stages", gpu: str = "H200", day: str = DAY) -> dict:
    """A row of experiment=rivals: us of a token at positions 1 and 200."""
    asked = {"task": "rivals", "device": {"name": "cuda", "why": gpu}, "model": MODEL, "row": engine}
    rates = {f"tok/s at {at}": 1e6 / each for at, each in zip((1, 200), us, strict=False)}
    found = {"state": "ran", "validated": by, **rates, "first token ms at 1": 2.0}
    row = {"id": f"{engine}-{by}", "kind": "row", "time": f"{day}T00:01:00+00:00", "found": found, "provenance": ORIGIN}
    return row | {"asked": asked | {"options": {"tokens": 32}}}


def table_of(*records: dict) -> dict[str, dict]:
    """Lines of the table, by what is timed."""
    found = lines(table(evidence(*records)))
    return {re.search(r"\w+(?=[\]*])|$", line["step"])[0]: line for line in found}


def test_steps_are_the_legal_beginnings_of_a_stack():
    """by_value needs joint_heads, and tensor_rows columns."""
    whole = ("by_value", "joint_heads", "bulk_ring", "tensor_rows", "columns")
    assert prefixes(whole, read_catalog()) == (whole[:2], whole[:3], whole)


def test_every_variant_of_the_built_stack_is_in_one_step():
    some = evidence()
    labels, stacks = zip(*steps(some).items(), strict=True)
    whole, _ = some.stack_of(FAST)
    assert (labels[0], stacks[0], stacks[-1]) == ("baseline", (), whole)
    assert [label.partition(" = ")[0] for label in labels[1:]] == [*whole]


def test_without_records_no_row_has_a_number():
    found = table_of()
    assert {line["step"] for line in found.values()} >= {"[baseline](variants/baseline.cu)", "**another engine**"}
    assert not re.search(
        r"\d", " ".join(f"{line['of the ceiling']}{line['against the row above']}" for line in found.values())
    )


def test_a_time_is_the_newest_of_one_gpu_model_day_and_position():
    here = [on("H200", 650, 1), on("H200", 640, 2), on("H200", 857, 3, "baseline"), on("H100", 777, 4)]
    here[2]["latencies"][0]["verdict"] = "UNSTABLE"
    odd = on("H200", 6, 5, verdict="IMPLAUSIBLE"), on("H200", 7, 6) | {"status": "NUMERIC_MISMATCH"}
    other = (
        on("H200", 5, 7) | {"time": "2026-01-02T00:00:00+00:00"},
        on("H200", 4, 8) | {"model": MODEL | {"name": "x"}},
        on("H200", 3, 9) | {"asked": {"blocks": 8}},
        on("H200", 2, 10) | {"asked": {"validation": {"trials": "none"}}},
    )
    found = table_of(*here, *odd, *other)
    assert (found["baseline"]["µs at 1"], found["joint_heads"]["µs at 1"]) == ("857~", "640")
    assert found["by_value"]["µs at 1"] == OPEN
    assert (found["joint_heads"]["of the ceiling"], found["baseline"]["against the row above"]) == ("50 %", "")
    assert found["joint_heads"]["against the row above"].replace("\u00a0", " ") == "-10.0 % [-12.0, -9.0]"
    (note,) = table(evidence(*here, *odd, *other)).notes
    assert f"**H200, tiny, {DAY}**" in note
    assert "~ its rounds disagree (UNSTABLE)." in note
    assert "Kernels: their texts of `aaaaaaa`." in note, "a kernel may have changed since"


def test_a_later_time_of_the_whole_stack_stands_below_a_table_of_more_steps():
    """By hand: the newest of the last day on that GPU; neither an earlier day, nor another GPU, nor a wrong kernel."""
    whole = evidence()._stacks[FAST]
    about = {"stack": [*whole.variants], "variant": FAST, "knobs": whole.knobs}
    days = {when: about | {"time": f"2026-01-0{when}T00:00:00+00:00"} for when in (2, 3)}
    table_rows = [on("H200", 857, 1, "baseline"), on("H200", 640, 2)]
    rows = [on("H200", 450, 3) | days[2], on("H200", 433.6, 4) | days[3], on("H100", 5, 5) | days[3]]
    rows.append(on("H200", 4, 6) | days[3] | {"status": "NUMERIC_MISMATCH"})
    assert len(table(evidence(*table_rows)).notes) == 1
    _, note = table(evidence(*table_rows, *rows)).notes
    assert note == f"**Newer**: `{FAST}` on 2026-01-03, its text of `aaaaaaa`: 434 µs at 1, 50 % of the ceiling at 1."


def test_a_change_against_another_stack_is_not_one_against_the_row_above():
    found = table_of(on("H200", 640, 1) | {"parent": ["by_value"]}, on("H200", 857, 2, "baseline"))
    assert (found["joint_heads"]["µs at 1"], found["joint_heads"]["against the row above"]) == ("640", "")


def test_a_rival_stands_there_if_its_stages_were_validated_at_that_place():
    """Both latencies by hand: 1 TB/s at half of the ceiling; a token of the model at position 1 in 800 us."""
    base = on("H200", 857, 1, "baseline")
    right = generation(RIVAL, 800.0, 1200.0)
    wrong = [generation(RIVAL, 5.0, **about) for about in ({"by": "ids"}, {"gpu": "H100"}, {"day": "2026-01-02"})]
    found = table_of(base, right, *wrong)
    assert [found["Triton"][f"µs at {at}"] for at in (1, 200)] == ["800†", "1,200†"]
    share = Model(**MODEL).bytes_per_token(1) / 800e-6 / 2e12
    assert found["Triton"]["of the ceiling"] == f"{100 * share:.0f} %"
    assert table_of(base, *wrong)["Triton"]["µs at 1"] == OPEN
    assert measured(evidence(base, generation(FAST, 500.0))).rows[f"stream_kv = {FAST}"].us == pytest.approx({1: 500.0})


def test_a_rival_that_failed_and_a_machine_without_git_leave_the_rest_of_the_table():
    base, right = on("H200", 857, 1, "baseline"), generation(RIVAL, 800.0)
    failed = right | {"id": "failed", "found": None}
    found = table_of(base | {"provenance": ORIGIN | {"git": None}}, right, failed)
    assert (found["baseline"]["µs at 1"], found["Triton"]["µs at 1"]) == ("857", "800†")


def test_a_text_of_changed_code_is_no_commits():
    (note,) = table(evidence(on("H200", 640, 1) | {"provenance": {"git": {"commit": "b" * 40, "dirty": True}}})).notes
    assert "Kernels: their texts of `bbbbbbb+`." in note


def test_the_table_of_readme_equals_the_records():
    """Worked out of the lines of the files: times, shares and changes; what has no record is not timed yet."""
    page = (ROOT / "README.md").read_text()
    block = re.search(r"<!-- generated:measured -->\n(.*?)\n<!-- /generated -->", page, re.DOTALL)[1].replace(
        "\u00a0", " "
    )
    gpu, model, day = re.search(r"\*\*(.+), (\w+), (20\d\d-\d\d-\d\d)\*\*", block).groups()
    files = re.findall(r"`(experiments/results/\w+\.jsonl)`", block)
    rows = [json.loads(line) for file in files for line in (ROOT / file).read_text().splitlines()]
    rows = [row for row in rows if row["time"].startswith(day) and (row["provenance"]["gpu"] or {}).get("name") == gpu]
    runs = {tuple(row["stack"]): row for row in rows if row["kind"] == "run" and row["model"]["name"] == model}
    rivals = {row["asked"]["row"]: row["found"] for row in rows if row["kind"] == "row"}
    head, _, *shown = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if "|" in line
    )
    positions = {cell: int(cell.split()[-1]) for cell in head if cell.startswith("µs")}
    assert {1, 200, 1024} <= {*positions.values()}
    stack, timed_rows = (), 0
    for line in (dict(zip(head, cells, strict=True)) for cells in shown):
        if "another engine" in line["step"]:
            continue
        name = re.search(r"\[(\w+)\]", line["step"])[1]
        stack += (name,) if name not in ("baseline", RIVAL) else ()
        run, engine = runs.get(stack), RIVAL if name == RIVAL else FAST if FAST in line["step"] else None
        if name != RIVAL and run:
            latencies = {each["position"]: each for each in run["latencies"]}
            assert run["status"] == "PASSED"
            for cell, at in positions.items():
                assert line[cell].rstrip("~") == (
                    f"{1e6 * latencies[at]['seconds']['median']:,.0f}" if at in latencies else ""
                )
            assert line["of the ceiling"] == f"{100 * latencies[1]['of_ceiling']:.0f} %"
            if pair := latencies[1]["comparison"]:
                low, middle, high = (100 * pair[each] for each in ("low", "effect", "high"))
                assert line["against the row above"] == f"{middle:+.1f} % [{low:+.1f}, {high:+.1f}]"
        elif engine in rivals:
            assert rivals[engine]["validated"] == "stages"
            for cell, at in positions.items():
                assert line[cell] == f"{1e6 / rivals[engine][f'tok/s at {at}']:,.0f}†"
        else:
            assert [line[cell] for cell in positions] == [OPEN, *[""] * (len(positions) - 1)]
            continue
        timed_rows += 1
    assert timed_rows >= 2


def test_times_and_rates_of_the_records_are_those_of_their_samples():
    """Bytes by hand: bf16 matrices once, a tied head among them, and keys and values up to each position."""
    runs = [json.loads(line) for file in (ROOT / RESULTS).glob("*.jsonl") for line in file.read_text().splitlines()]
    found = [(run["model"], each) for run in runs if run.get("kind") == "run" for each in run["latencies"]]
    assert len(found) >= 12
    for m, time in found:
        assert time["seconds"]["median"] == statistics.median(time["samples"])
        heads = (2 * m["heads"] + 2 * m["kv_heads"]) * m["head_dim"]
        weights = m["layers"] * m["hidden"] * (heads + 3 * m["intermediate"]) + m["vocab"] * m["hidden"]
        entries = time["position"] + (time["steps"] + 1) / 2
        read = 2 * weights + entries * m["layers"] * 2 * m["kv_heads"] * m["head_dim"] * 2
        assert (time["bytes_per_step"], time["bandwidth"]) == (read, read / time["seconds"]["median"])
        assert time["of_ceiling"] < 1
        if pair := time["comparison"]:
            assert pair["low"] <= pair["effect"] <= pair["high"]


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
