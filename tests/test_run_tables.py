"""Tables of runs in a terminal of any width, and their JSON."""

import io
import json

import pytest
from made_records import shown_run
from rich.console import Console

from common.display.table import Table, terminal
from experiments.tables.result_table import COUNTED, ResultTable, show_result
from experiments.tables.run_table import COUNTS_ONLY, show_json, show_tables

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def timed(position: int, verdict: str, us: float, gb_per_s: float, share: float, *marks: str) -> dict:
    seconds = {"median": 1e-6 * us, "low": 1e-6 * (us - 10), "high": 1e-6 * (us + 10)}
    rate = {"bandwidth": 1e9 * gb_per_s, "of_ceiling": share}
    return {"position": position, "seconds": seconds, **rate, "verdict": verdict, "marks": marks}


def stack(name: str, *variants: str, **more) -> dict:
    return shown_run(name, knobs={}, **({"counts": None, "resources": {}} | more)) | {"stack": variants}


def rows(cuda: bool) -> list[dict]:
    def measured(verdict: str) -> list[dict]:
        return [timed(at, verdict, 1000.0 + at, 953.2, 0.7124) for at in (1, 200)] if cuda else []

    def passed(name: str, variants: tuple[str, ...], error: float, stage: str, verdict: str, **counts: int) -> dict:
        worst = {"stage": stage, "layer": None, "error": error, "ratio": 0.5}
        facts = {arch: {"registers": 64 + i, "spill_bytes": 16 if i == 5 else 0} for i, arch in enumerate(ARCHS)}
        found = {"verdict": {"worst": worst}, "counts": {"qkv": counts}, "resources": facts}
        return stack(name, *variants, **found, latencies=measured(verdict))

    long = ("redundant_rmsnorm", "vec128", "atomic_barrier", "productive_spin", "fused_head", "multi_step")
    some = {"grid_barriers": 226, "weights_64bit": 1_191_968_768, "activations_32bit": 2_340}
    return [
        passed("baseline", (), 3.2e-7, "lm_head", "SAME", **some),
        passed("persistent", long, 1e-6, "attention", "FASTER", grid_barriers=113, weights_128bit=1_191_968_768),
        stack("cp_async", "cp_async", status="MISMATCH", reason="attention layer 3 [12] is 0.25, want 0.5"),
    ]


def shown(width: int, cuda: bool) -> str:
    stream = io.StringIO()
    show_tables(rows(cuda), "tiny on a machine", "cuda" if cuda else "ptx", Console(file=stream, width=width))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
@pytest.mark.parametrize("cuda", [False, True])
def test_tables_fit_the_terminal_and_keep_all_columns(width, cuda):
    text = shown(width, cuda)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines() if "│" in line) <= width
    words = text.split()
    for word in ("3.2e-07", "lm_head", "226", "113", "64/0", "69/16", "MISMATCH", "1.19", *ARCHS):
        assert word in words, word
    for name in ("redundant_rmsnorm", "productive_spin", "multi_step"):
        assert name in text
    timing = ("1001.0", "1200.0", "±1.00", "953", "71.2", "FASTER")
    assert all((word in words) == cuda for word in timing)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_long_name_is_wrapped_and_no_figure_is_cut(width):
    names = ("joint_heads", "by_value", "bulk_ring", "columns", "value_token", "tensor_rows", "tensor_scores")
    long = rows(False)[0] | {"variant": "+".join(names), "stack": names}
    stream, joined = io.StringIO(), "+".join(names)
    console = Console(file=stream, width=width)
    show_tables([long], "here", "ptx", console)
    found = [{"variant": joined, "parent": joined, "us a step": 1234567.0, "change %": -12.25}]
    show_result(ResultTable("ablation", "?", found, COUNTED, keys=2), console)
    text = stream.getvalue()
    table_lines = [line for line in text.splitlines() if "│" in line]
    assert max(map(len, table_lines)) <= width
    assert "…" not in text
    for figure in ("3.2e-07", "226", "1.19 GB", "1,234,567", "-12.25"):
        assert any(figure in line for line in table_lines), figure
    keys = [line.partition("│")[0].strip() for line in table_lines]
    assert "".join(keys).count(joined) == text.count("variant "), "each table has the whole name"


def test_a_terminal_narrower_than_a_part_cuts_no_figure():
    figures = {line.partition("│")[2].strip() for line in shown(12, False).splitlines()}
    assert {"3.2e-07 / 6.4e-07", "226", "1.19 GB", "2.34 kB", "64/0"} <= figures


@pytest.mark.parametrize("width", [38, 60])
def test_a_text_in_a_further_part_of_a_table_is_whole_and_the_console_keeps_its_width(width):
    remark = "a remark of several words"
    row = {
        "variant": "redundant_rmsnorm+vec128",
        **{f"figure {number}": 123456 for number in range(6)},
        "remark": remark,
    }
    console = Console(file=io.StringIO(), width=width)
    terminal(Table.of([row], names=1), console)
    last = console.file.getvalue().split("\n\n")[-2].splitlines()[2:]  # below the heads
    assert " ".join(line.rpartition("│")[2].strip() for line in last) == remark
    assert console.width == width


def test_a_list_in_brackets_is_shown_in_every_table():
    name, stream = "l2_prefetch matrices=[o,gate]", io.StringIO()
    console = Console(file=stream, width=100)
    show_tables([rows(False)[0] | {"variant": name}], "tiny", "ptx", console)
    show_result(ResultTable("counts", "?", [{"variant": name, "loads": 1}], COUNTED), console)
    assert stream.getvalue().count("matrices=[o,gate]") >= 3  # two tables of the run, and the experiment's


@pytest.mark.parametrize("width", [100, 160])
def test_a_table_of_a_cpu_states_that_it_has_no_gpu_time(width):
    assert COUNTS_ONLY.split()[0] in shown(width, False)
    assert "not GPU time" in shown(width, False)
    assert "GPU time" not in shown(width, True)
    for name in ("us a step", "steps/s"):  # a step with drafts may keep several tokens
        assert (name in shown(width, True), name in shown(width, False)) == (True, False)


def test_counts_name_the_model_that_they_are_of():
    stream = io.StringIO()
    one = rows(False)[0]
    both = [one | {"model": {"name": name}} for name in ("tiny", "odd", "tiny")]
    show_tables(both, "here", "ptx", Console(file=stream, width=200))
    assert "Counts of one token of tiny, odd, not GPU time" in stream.getvalue()


def test_wide_tables_are_not_split_without_need():
    assert shown(100, False).count("variant ") > 1 == shown(240, False).count("variant ")


def test_the_reason_is_printed_under_the_table():
    assert shown(100, True).splitlines()[-1] == "cp_async: MISMATCH attention layer 3 [12] is 0.25, want 0.5"


def test_a_table_has_only_passed_and_plausible_rows():
    def measured(*how: str) -> list[dict]:
        return [timed(1, how[0], 100.0, 9532.0, 2.1, *how[1:])]

    impossible = stack("impossible", "impossible", latencies=measured("IMPLAUSIBLE"))
    disturbed = stack("disturbed", "disturbed", latencies=measured("SAME", "2 other process(es) on the GPU"))
    interrupted = stack("stopped", "stopped", status="INTERRUPTED", reason="by hand")
    stream = io.StringIO()
    show_tables([impossible, disturbed, interrupted], "here", "cuda", Console(file=stream, width=200))
    table, _, below = stream.getvalue().partition("\n\n")
    assert ("impossible" in table, "stopped" in table, "disturbed" in table) == (False, False, True)
    assert below.split("\n")[-4:] == [
        "impossible: IMPLAUSIBLE 9532 GB/s, 210 % of the read ceiling, from position 1",
        "disturbed: from position 1, 2 other process(es) on the GPU",
        "stopped: INTERRUPTED by hand",
        "",
    ]


def test_json_prints_one_object_per_line(capsys):
    show_json(rows(True))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["status"] for row in found] == ["PASSED", "PASSED", "MISMATCH"]
    assert found[0]["counts"]["qkv"]["weights_64bit"] == 1_191_968_768
    assert found[1]["latencies"][1]["position"] == 200
    assert found[1]["resources"]["sm_120"] == {"registers": 69, "spill_bytes": 16}
