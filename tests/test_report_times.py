"""Report: times, measured where a record has them, else not there."""

from made_records import MODEL, UNTIMED, evidence, line, result, timed

from common.display.table import markdown
from experiments.report import blocks, overview
from experiments.report.evidence import NOTHING
from experiments.report.figures import all_figures
from experiments.report.timed import OPEN


def test_measured_gpu_time_is_shown_with_its_interval():
    both = evidence(*UNTIMED, timed("redundant_rmsnorm", ["redundant_rmsnorm"]))
    shown = line(overview.everything(both), "redundant_rmsnorm")["time against parent"]
    assert shown == "A GPU, tiny: 500.0 us at 1: FASTER -10.0 % [-12.0, -9.0]"
    (figure,) = (each for each in all_figures(both) if each.name == "ablation")
    assert figure.basis == "measured"


def at(positions: list[int], when: int, cache: int = 64, **more) -> dict:
    """A run of megaqwen on a GPU, timed at `positions` with a cache of that size; 100 us slower at each second."""
    row = timed("megaqwen", ["redundant_rmsnorm", "l2_prefetch", "vec128"])
    known = evidence()._stacks["megaqwen"].knobs
    (latency,) = row["latencies"]
    times = [latency | {"position": each, "seconds": {"median": 1e-4 * when}} for each in positions]
    row |= {"id": f"m-{when}", "time": f"2026-01-01T00:00:{when:02}+00:00", "latencies": times, "knobs": known}
    return row | {"model": MODEL | {"positions": cache}} | more


def test_the_effect_of_leaving_one_out_is_never_shown_as_the_stacks_own():
    own = at([1], when=10)
    without = at([1], when=11, parent=["redundant_rmsnorm", "l2_prefetch"], variant="megaqwen - vec128")
    for rows in ([own, without], [without, own]):
        shown = line(overview.everything(evidence(*rows)), "megaqwen")
        assert "1000.0 us at 1" in shown["time against parent"]
    assert line(overview.everything(evidence(without)), "megaqwen")["time against parent"] == OPEN
    assert line(overview.everything(evidence(without)), "megaqwen")["validation"] == NOTHING


def test_positions_and_caches_are_not_mixed():
    """Three runs of a ladder with a larger cache are newer than the ablation, and others have the ablation only."""
    norm = timed("redundant_rmsnorm", ["redundant_rmsnorm"])
    ladder = at([1, 4096], when=12, cache=16448)
    rows = evidence(norm, at([1], when=10), ladder)
    assert "1000.0 us at 1:" in line(overview.everything(rows), "megaqwen")["time against parent"]
    assert "4096" not in markdown(overview.gallery(rows))
    assert "4096" in markdown(overview.gallery(evidence(ladder))), "of the only question asked, all positions"


def test_an_implausible_time_is_in_no_table_and_no_figure():
    row = at([1], when=10)
    row["latencies"] = [latency | {"verdict": "IMPLAUSIBLE"} for latency in row["latencies"]]
    assert line(overview.everything(evidence(row)), "megaqwen")["time against parent"] == "A GPU, tiny: IMPLAUSIBLE"
    assert all(figure.name != "ablation" for figure in all_figures(evidence(row)))


def test_a_measurement_has_precedence_over_a_newer_estimate():
    old = result("roofline", "measured", [{"variant": "baseline", "GB/s": 1.0}], when=1)
    new = result("roofline", "estimated", [{"variant": "baseline", "GB/s": 2.0}], when=2)
    text = blocks.make("experiment:roofline", evidence(old, new))
    assert "| baseline | 1 |" in text
    assert "Measured on a GPU" in text
    assert "Needs a GPU: all of it" in text
