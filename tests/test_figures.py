"""Figures of the report: what they show, and that any light can."""

from xml.etree import ElementTree

from made_records import evidence
from test_ladder import generation, on

from common import ROOT
from experiments.report import charts
from experiments.report.__main__ import FIGURES
from experiments.report.figures import all_figures
from experiments.report.measured import OPEN, steps

TWO = evidence(on("H200", 640, 1), on("H200", 857, 2, "baseline"), generation("Triton", 800.0))


def words(svg: str) -> list[str]:
    return [node.text for node in ElementTree.fromstring(svg).iter() if node.text]


def test_the_picture_of_the_steps_has_measured_bars_and_says_what_is_not_timed():
    assert not all_figures(evidence(on("H200", 640, 1))), "one bar says nothing, one position is no curve"
    shown = words(all_figures(TWO)["steps"])
    assert {"640", "857", "800†", "baseline", "joint_heads", "Triton"} <= {*shown}
    assert shown.count(OPEN.strip("*")) == len(steps(TWO)) - 2
    assert any("H200, 2026-01-01" in each for each in shown)
    assert any("† mean over 32 tokens" in each for each in shown)


def test_the_picture_of_the_positions_has_what_was_timed_at_two_of_them():
    some = evidence(on("H200", 640, 1), generation("streaming", 500.0), generation("Triton", 800.0, 1200.0))
    (name,) = {*all_figures(some)} - {"steps"}
    shown = {*words(all_figures(some)[name])}
    assert name == "positions"
    assert "Triton†" in shown
    assert not {"joint_heads", "stream_kv = streaming†"} & shown


def test_figures_are_reproducible_and_have_the_pages_color():
    for name, svg in all_figures(TWO).items():
        assert svg == all_figures(TWO)[name]
        assert charts.INK not in svg
        assert "currentColor" in svg
        assert "prefers-color-scheme" in svg


def test_charts_can_be_read_on_a_light_and_a_dark_page():
    """WCAG 2.2, 1.4.11: graphics have a contrast of 3 to 1; text has the color of the page's own text."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for paper in ("#ffffff", "#0d1117", "#151c23"):
        for color in charts.COLORS:
            low, high = sorted((luminance(paper), luminance(color)))
            assert (high + 0.05) / (low + 0.05) >= 3, (color, paper)


def test_committed_figures_are_the_shown_ones():
    found = {path.name: ElementTree.parse(path).getroot().tag for path in (ROOT / FIGURES).glob("*.svg")}
    shown = (ROOT / "docs" / "gallery.md").read_text()
    assert found
    assert all(tag.endswith("svg") and name in shown for name, tag in found.items())
