"""Report: times, measured where a record has them, else predicted and called so."""

from made_records import MODEL, UNTIMED, evidence, line, result, timed

from common.display.table import markdown
from experiments.report import blocks, overview, variants
from experiments.report.evidence import NOTHING
from experiments.report.figures import all_figures
from experiments.report.predicted import OPEN


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


def test_a_measurement_has_precedence_over_a_newer_prediction():
    old = result("roofline", "measured", [{"variant": "baseline", "GB/s": 1.0}], when=1)
    new = result("roofline", "predicted", [{"variant": "baseline", "GB/s": 2.0}], when=2)
    text = blocks.make("experiment:roofline", evidence(old, new))
    assert "| baseline | 1 |" in text
    assert "Measured on a GPU" in text
    assert "Needs a GPU: all of it" in text


def test_an_effect_that_is_not_modelled_is_never_a_number():
    lines = [
        {"variant": "baseline", "predicted us, RTX 3090": 1700.0, "predicted effect %": None, "model": ""},
        {
            "variant": "redundant_rmsnorm",
            "predicted us, RTX 3090": 1700.0,
            "predicted effect %": None,
            "model": "not modelled",
        },
    ]
    rates = [{"gpu": "rtx3090", "stack": "baseline", "position": 1, "system": "another", "error %": -51.0}]
    rates[0] |= {"predicted tok/s": 49.0, "published tok/s": 100.0}
    some = evidence(*UNTIMED, result("ablation", "predicted", lines), result("predict", "predicted", rates))
    table = overview.everything(some)
    assert line(table, "baseline")["time against parent"] == "predicted 1,700 us"
    assert line(table, "redundant_rmsnorm")["time against parent"] == "not modelled; published -29.6 %"
    assert "no bound" in table.notes[-1]
    assert "-51 %" in table.notes[-1]
    assert "the model meets 0;" in table.notes[-1]
    assert any("not modelled" in note for note in variants.against_parent("redundant_rmsnorm", some).notes)
    assert (
        line(variants.changes("redundant_rmsnorm", some), "predicted us, RTX 3090")["redundant_rmsnorm"]
        == "not modelled"
    )
    assert all(figure.name != "ablation" for figure in all_figures(some)), "nothing predicted: nothing to draw"


def test_a_published_effect_stands_beside_the_prediction_that_does_not_meet_it():
    """Published: twice the tokens a second, half the time; one prediction comes near to it, one does not."""
    lines = [
        {
            "variant": name,
            "predicted us, RTX 3090": 900.0,
            "predicted effect %": -50.0,
            "low %": -50.1,
            "high %": -49.9,
            "model": "",
        }
        for name in ("l2_prefetch", "cp_async")
    ]
    table = overview.everything(evidence(*UNTIMED, result("ablation", "predicted", lines)))
    times = [line(table, name)["time against parent"] for name in ("cp_async", "l2_prefetch")]
    assert times == ["predicted -50.0 % [-50.1, -49.9]; published -1.0 %", "predicted -50.0 % [-50.1, -49.9]"]
    assert "beside each prediction that does not meet it" in table.notes[-1]


def test_a_prediction_on_another_gpu_names_it_and_stands_in_a_row_of_its_own():
    old, new = "predicted us, RTX 3090", "predicted us, H200"
    lines = [
        {"variant": "baseline", old: 1700.0, new: None, "predicted effect %": None, "model": ""},
        {"variant": "vec128", old: 1600.0, new: None, "predicted effect %": -5.9, "model": ""},
        {"variant": "bulk_ring", old: None, new: 700.0, "predicted effect %": -30.0, "model": ""},
    ]
    some = evidence(*UNTIMED, result("ablation", "predicted", lines))
    table = overview.everything(some)
    assert line(table, "vec128")["time against parent"] == "predicted -5.9 %"
    assert line(table, "bulk_ring")["time against parent"] == "predicted -30.0 % on H200"
    both = variants.changes("vec128,bulk_ring", some)
    assert [line(both, old)[name] for name in ("vec128", "bulk_ring")] == ["1,600 (-5.9 %)", "-"]
    assert [line(both, new)[name] for name in ("vec128", "bulk_ring")] == ["-", "700 (-30.0 %)"]
