"""Lab root with its own variants: the real configuration, with sources that are never compiled."""

import shutil
from pathlib import Path

from common import ROOT

HEADER = """// Idea        {idea}
// Hypothesis  it is free
// Overrides   attention
// Run         python -m experiments variant={name}

template <class Base> struct {mixin} : Base {{
  static DEVICE void attention(const Context &c, int layer) {{ Base::attention(c, layer); }}
}};
"""
WARP_SPLIT = """\
knobs:
  ratio: {kind: ratio, default: "2:6", help: "producer and consumer warps"}
"""
PREFETCH = """\
parent: [warp_split]
min_arch: 80
excludes: [lazy]
knobs:
  how: {kind: choice, default: prefetch, choices: [prefetch, ldg], help: the instruction}
  matrices: {kind: list, default: [o, down], choices: [o, gate, down], help: what to fetch}
  bytes: {kind: int, default: 128, minimum: 0, maximum: 4096, help: per block}
"""
LAZY = """\
launch: plain
why_not_bit_equal: it sums in another order
"""
BOTH = """\
idea: two at once
stack: [warp_split, prefetch]
knobs: {how: ldg}
"""


def add(root: Path, name: str, text: str, header: str = HEADER) -> None:
    """Add one variant: `text` is its yaml, `header` all of its source; without a header it has no source."""
    (root / "conf" / "variant" / f"{name}.yaml").write_text(text)
    if header:
        mixin = "".join(part.capitalize() for part in name.split("_"))
        text = header.format(name=name, idea=f"the idea of {name}", mixin=mixin)
        (root / "variants" / f"{name}.cu").write_text(text)


def make_root(path: Path) -> Path:
    """baseline, warp_split, prefetch (on warp_split), lazy, and the named stack `both`."""
    shutil.copytree(ROOT / "conf", path / "conf", ignore=shutil.ignore_patterns("variant"))
    (path / "conf" / "variant").mkdir()
    (path / "variants").mkdir()
    for name in ("all", "catalog"):
        shutil.copy(ROOT / "conf" / "variant" / f"{name}.yaml", path / "conf" / "variant")
    for name, text in {"baseline": "", "warp_split": WARP_SPLIT, "prefetch": PREFETCH, "lazy": LAZY}.items():
        add(path, name, text)
    add(path, "both", BOTH, header="")
    return path
