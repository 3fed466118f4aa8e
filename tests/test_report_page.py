"""Page and figures of the report: reproducible, without anything loaded, and readable in any light."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from made_records import UNTIMED, evidence, result

from common import ROOT
from experiments.report import charts
from experiments.report.__main__ import RESULTS
from experiments.report.figures import all_figures
from experiments.report.page import page


class Reader(HTMLParser):
    """Parser of a page: its ids, links and external resources, and whether its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.ids, self.links, self.loads, self.open = set(), set(), [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        if tag == "a":
            self.links.add(found["href"])
        elif tag in ("script", "link", "img", "iframe") or "xlink:href" in found:
            self.loads += [found[key] for key in ("src", "href", "xlink:href") if key in found]
        if tag not in ("meta", "use", "path", "img", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids.add(dict(attrs).get("id"))

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


RATIOS = [{"producers:consumers": "0:8", "average tok/s": 500.0, "published average": 509.9}]
FULL = (*UNTIMED, result("ratios", "measured", RATIOS))


def test_the_page_is_self_contained_and_states_the_origin_of_its_numbers():
    some = evidence(*FULL)
    text = page(some, all_figures(some))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert all(each.startswith("#") for each in (*reader.links, *reader.loads)), "only links within the page"
    assert {link[1:] for link in reader.links} <= reader.ids
    assert {row["id"] for row in FULL} <= reader.ids
    assert not re.search(r"@import|url\((?!#)", text)
    assert "None of it is GPU time" in text
    assert "python -m x &lt;y&gt;" in text
    assert "struct RedundantRmsnorm" in text, "the source difference"
    assert text == page(some, all_figures(some))


def test_the_page_asks_for_no_element_without_a_hash_and_follows_the_light():
    """The page in a browser's console and on a narrow or dark screen, as far as it can be read off the file."""
    text = page(evidence(*FULL), all_figures(evidence(*FULL)))
    script = text[text.rindex("<script>") :]
    assert script.index("if (!location.hash) return;") < script.index("location.hash.slice(1)")
    assert '<meta name="color-scheme" content="light dark">' in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert len(re.findall("<table", text)) == len(re.findall('<div class="scroll"><table', text)), "every table scrolls"
    style = text[text.index("<style>") : text.index("</style>")]
    assert {*re.findall(r"var\((--\w+)\)", style)} <= {*re.findall(r"(--\w+):", style)}
    light, dark = (
        re.findall(r"(--\w+): (#\w+)", part) for part in style.split("@media (prefers-color-scheme: dark)")[:2]
    )
    assert {name for name, _ in light} == {name for name, _ in dark}, "each color has its dark one"
    sections = re.findall(r"<details[^>]*>", text)
    assert len([each for each in sections if " open" in each]) <= 1, "the page begins short"


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
    for figure in all_figures(evidence(*FULL)):
        assert charts.INK not in figure.svg
        assert "currentColor" in figure.svg
        assert "prefers-color-scheme" in figure.svg


def test_figures_are_labelled_svg_and_reproducible():
    first, second = all_figures(evidence(*FULL)), all_figures(evidence(*FULL))
    assert [figure.name for figure in first] == ["counts", "ratios"]
    assert [figure.basis for figure in first] == ["counted", "measured"]
    for figure, again in zip(first, second, strict=True):
        assert figure.svg == again.svg
        words = {node.text for node in ElementTree.fromstring(figure.svg).iter() if node.text}
        wanted = {"counts": {"redundant_rmsnorm", "grid barriers"}, "ratios": {"0:8", "measured here"}}
        assert wanted[figure.name] <= words


def test_a_measured_roofline_is_drawn_and_bytes_of_stages_are_not_one():
    """Memory at 1,000 GB/s, arithmetic at 50,000 GFLOP/s: the ridge is at 50 FLOP per byte, the point 20 % below."""
    names = ("kind", "what", "MB", "GB/s", "FLOP/byte", "GFLOP/s")
    rows = [
        ("probe", "read, 128-bit loads", 1.0, 1000.0, None, None),
        ("roof", "fp32 arithmetic", None, None, None, 50_000.0),
        ("variant", "vec128", 1.0, 800.0, 1.0, 800.0),
    ]
    table = [dict(zip(names, row, strict=True)) for row in rows]
    (figure,) = all_figures(evidence(result("roofline", "measured", table)))
    words = {node.text for node in ElementTree.fromstring(figure.svg).iter() if node.text}
    assert figure.name == "roofline"
    assert {"vec128", "read, 128-bit loads: 1,000 GB/s", "fp32 arithmetic: 50,000 GFLOP/s"} <= words
    (figure,) = all_figures(evidence(result("roofline", "counted", [{"kind": "stage", "what": "qkv", "MB": 235.0}])))
    assert figure.name == "stage_bytes"

    drawn = Drawn()
    charts.roofline(drawn, {"read": 1000.0}, {"fp32": 50_000.0}, {"vec128": (1.0, 800.0)})
    slope, flat, point = drawn.lines
    assert slope == ((0.1, 50.0), [100.0, 50_000.0])
    assert flat == ((50.0, 500.0), (50_000.0, 50_000.0))
    assert point == (1.0, 800.0)
    assert (drawn.settings["xscale"], drawn.settings["yscale"]) == ("log", "log")


class Drawn:
    """Axes that record what is drawn on them."""

    def __init__(self) -> None:
        self.lines, self.settings = [], {}

    def plot(self, x, y, *_, **__) -> None:
        self.lines.append((x, y))

    def set(self, **settings) -> None:
        self.settings |= settings

    def legend(self, **_) -> None:
        pass


def test_committed_records_parse():
    for path in sorted((ROOT / RESULTS).glob("figures/*.svg")):
        assert ElementTree.parse(path).getroot().tag.endswith("svg"), path
    for path in (ROOT / RESULTS).glob("*.jsonl"):
        assert all(json.loads(line)["id"] for line in path.read_text().splitlines() if line.strip()), path
