"""A lab root with variants of its own: the real configuration, sources that nobody compiles."""

import shutil
from pathlib import Path

from omegaconf import OmegaConf

from common.catalog import ROOT

WARP_SPLIT = """
  name: warp_split
  idea: some warps fetch ahead
  hypothesis: the others never wait
  overrides: [qkv]
  min_arch: 75
  knobs:
    ratio: {kind: ratio, help: "producer and consumer warps"}
"""
PREFETCH = """
  name: prefetch
  idea: idle blocks warm the cache
  hypothesis: attention leaves most of them idle
  overrides: [attention]
  parent: [warp_split]
  min_arch: 80
  excludes: [lazy]
  knobs:
    how: {kind: choice, choices: [prefetch, ldg], help: the instruction}
    matrices: {kind: list, choices: [o, gate, down], help: what to fetch}
    bytes: {kind: int, minimum: 0, maximum: 4096, help: per block}
"""
LAZY = """
  name: lazy
  idea: fetch nothing
  hypothesis: it is free
  min_arch: 75
  launch: plain
  bit_equal: false
  why_not_bit_equal: it sums in another order
"""


def add(root: Path, block: str, values: str = "", source: bool = True) -> None:
    """Add one variant: `block` is its `variant:` mapping, `values` the top-level knob defaults."""
    name = OmegaConf.create(f"variant:{block}").variant.name
    (root / "conf" / "variant" / f"{name}.yaml").write_text(f"# @package _global_\nvariant:{block}{values}")
    if source:
        (root / "variants" / f"{name}.cu").write_text("// nothing\n")


def make_root(path: Path) -> Path:
    """baseline, warp_split, prefetch (on warp_split), lazy, and the named stack `both`."""
    shutil.copytree(ROOT / "conf", path / "conf", ignore=shutil.ignore_patterns("variant"))
    (path / "conf" / "variant").mkdir()
    (path / "variants").mkdir()
    for name in ("all", "baseline"):
        shutil.copy(ROOT / "conf" / "variant" / f"{name}.yaml", path / "conf" / "variant")
    (path / "variants" / "baseline.cu").write_text("// nothing\n")
    add(path, WARP_SPLIT, 'ratio: "2:6"\n')
    add(path, PREFETCH, "how: prefetch\nmatrices: [o, down]\nbytes: 128\n")
    add(path, LAZY)
    add(path, "\n  name: both\n  idea: two at once\n  stack: [warp_split, prefetch]\n", "how: ldg\n", source=False)
    return path
