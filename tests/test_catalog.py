"""Catalog of variants: two new files are a variant, and a broken yaml is named."""

import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from temporary_root import BOTH, HEADER, LAZY, WARP_SPLIT, add, make_root

from common import ROOT
from common.compile.source import build
from common.config.cli import composed, run_task
from common.config.resolve import resolve
from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.knobs import Knob
from common.stacks.stack import choose_stacks


@pytest.fixture
def root(tmp_path):
    return make_root(tmp_path)


def test_two_new_files_are_a_variant(root):
    before = set(read_catalog(root).variants)
    read_catalog.cache_clear()
    add(root, "fused_head2", WARP_SPLIT.replace("2:6", "1:7"))
    found = read_catalog(root).variants
    assert set(found) - before == {"fused_head2"}
    added = found["fused_head2"]
    assert (added.mixin, added.file.name) == ("FusedHead2", "fused_head2.cu")
    assert added.knobs[0].default == "1:7"
    assert (added.parent, added.launch, added.why_not_bit_equal, added.excludes) == ((), "cooperative", "", ())
    assert added.idea == "the idea of fused_head2"


def test_baseline_is_first_and_named_stacks_are_listed_separately(root):
    catalog = read_catalog(root)
    assert list(catalog.variants) == ["baseline", "lazy", "prefetch", "warp_split"]
    assert catalog.stacks["both"].variants == ("warp_split", "prefetch")
    assert catalog.stacks["both"].knobs == {"how": "ldg"}
    assert set(catalog.selections) == {"all", "catalog"}
    assert catalog.takers("ratio") == ["warp_split"]


def test_fields_of_a_variant_are_read(root):
    lazy, prefetch = (read_catalog(root).variants[name] for name in ("lazy", "prefetch"))
    assert (lazy.launch, lazy.min_arch, lazy.why_not_bit_equal) == ("plain", 75, "it sums in another order")
    assert (prefetch.parent, prefetch.excludes) == (("warp_split",), ("lazy",))
    assert {knob.name: knob.kind for knob in prefetch.knobs} == {"how": "choice", "matrices": "list", "bytes": "int"}


COPIES = {"variant": "lazy", "model": "tiny", "timing": "none", "validate": "plain", "device": "ptx"}


@pytest.mark.parametrize("group", COPIES)
def test_a_copy_has_the_name_of_its_file(root, group):
    folder = root / "conf" / group
    shutil.copy(folder / f"{COPIES[group]}.yaml", folder / "copied.yaml")
    assert composed("config", [f"{group}=copied"], root)[group].name == "copied"


def test_every_shipped_variant_has_both_files():
    catalog = read_catalog()
    assert not catalog.broken
    assert set(catalog.variants) == {path.stem for path in (ROOT / "variants").glob("*.cu")}
    assert "baseline" in catalog.variants


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LAZY, "- lazy\n", "not a mapping"),
        ("launch: plain", "# @package _global_\nlaunch: plain", "@package"),
        ("launch: plain", "idea: fetch nothing", "idea"),
        ("launch: plain", "launch: alone", "cooperative, plain"),
        ("launch: plain", "min_arch: sm_75", "min_arch: sm_75"),
        ("launch: plain", "min_arch: 8", "says min_arch: 8; give 75 or more"),
        ("launch: plain", "loader_warps: -1", "loader_warps: -1; give 0 or more"),
        ("launch: plain", "excludes: [both]", "excludes: unknown variant 'both'; known: "),
        ("launch: plain", "requires: [prefech]", "requires: unknown variant 'prefech'; did you mean 'prefetch'"),
        ("launch: plain", "outside: [lazy]", "outside: unknown variant 'lazy'; known: "),
        ("launch: plain", "name: lazy", "unknown key name"),
        ("launch: plain", "parent: [missing]", "missing"),
        ("launch: plain", "excludes: missing", "excludes"),
        ("launch: plain", "scratch: {rope: [2, 4]}", "scratch.rope: [2, 4]; give it another name"),
        ("launch: plain", "scratch: {mine: [4]}", "scratch.mine: [4]; give a list: turns"),
        ("launch: plain", "scratch: {mine: [2, rows]}", "scratch.mine: [2, 'rows']: no value of 'rows'; write"),
        ("launch: plain", "scratch: {mine: [2, 4.5]}", "scratch.mine: [2, 4.5]: no value of '4.5'; write"),
        ("launch: plain", "scratch: {3: [2, 4]}", "scratch.3: [2, 4]; give it another name"),
        ("launch: plain", "min_arch: [", "not YAML"),
        ("launch: plain", "published: '${'", "not YAML"),
        ("launch: plain", "published: \udcff", "not YAML"),
        ("launch: plain", "knobs: {n: 3}", "knob n: is 3"),
        ("launch: plain", "knobs: {n: {kind: int, help: x}}", "knob n: has no default; "),
        ("launch: plain", "knobs: {n: {kind: int, default: two, help: x}}", "n=two is not a whole number; "),
        ("launch: plain", "knobs: {n: {kind: int, default: 1, auto: arc, help: x}}", "auto: arc: no value of 'arc'"),
        ("launch: plain", "knobs: {n: {kind: float, default: 1, help: x}}", "float"),
        ("launch: plain", "knobs: {n: {kind: int, default: 1, top: 3, help: x}}", "top"),
        ("launch: plain", "knobs: {n: {kind: choice, default: 1, help: x}}", "choices"),
        ("launch: plain", "knobs: {n: {kind: int, default: 4, maximum: 3, help: x}}", "n=4"),
        ("launch: plain", "knobs: {seed: {kind: int, default: 4, help: x}}", "seed"),
        ("launch: plain", "knobs: {n: {kind: choice, default: a, choices: [a], min_arch: [a], help: x}}", "min_arch"),
        ("launch: plain", "knobs: {n-1: {kind: int, default: 1, help: x}}", "a knob named n-1; give it another name"),
        ("launch: plain", "knobs:\n  r: {kind: ratio, default: 2:6, help: x}", "r=126 is not P:C of 8 warps; "),
    ],
)
def test_a_wrong_yaml_is_reported_with_its_name(root, old, new, message):
    (root / "conf" / "variant" / "lazy.yaml").write_bytes(LAZY.replace(old, new).encode(errors="surrogateescape"))
    catalog = read_catalog(root)
    assert list(catalog.broken) == ["lazy"]
    assert message in str(catalog.broken["lazy"])
    assert "lazy.yaml" in str(catalog.broken["lazy"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("// Idea        {idea}\n", "", "lazy.cu does not begin with `// Idea`; say it there"),
        ("// Idea        {idea}", "// Idea", "lazy.cu does not begin with `// Idea`"),
        ("struct {mixin}", "struct Lazier", "variants/lazy.cu has no struct Lazy; name its struct so"),
        ("// Overrides   attention", "// Overrides   o_proj", "overrides o_proj, its struct has no such member"),
        ("attention", "atension", "lazy.cu says that it overrides atension, which no other kernel has"),
        (
            "DEVICE void attention(",
            "DEVICE void atension(int) {{ Base::attention(",
            "defines atension, and no kernel uses",
        ),
    ],
)
def test_a_wrong_header_is_reported_and_costs_only_its_variant(root, old, new, message):
    assert old in HEADER
    add(root, "lazy", LAZY, HEADER.replace(old, new))
    catalog = read_catalog(root)
    assert list(catalog.broken) == ["lazy"]
    assert message in str(catalog.broken["lazy"])
    assert choose_stacks(catalog, "warp_split", None, {}, 256)[0].variants == ("warp_split",)


@pytest.mark.parametrize(
    ("yaml", "header", "message"),
    [
        (LAZY, HEADER.replace("// Idea  ", "// idea  "), "variants/lazy.cu does not begin with `// Idea`"),
        (LAZY + "min_arch: [\n", HEADER, "conf/variant/lazy.yaml is not YAML"),
    ],
)
@pytest.mark.parametrize("argv", [["variant=lazy", "depth=4"], ["stack=[lazy]", "depth=4"], ["variant=lazy"]])
def test_the_error_of_a_variant_comes_before_those_of_its_knobs(root, yaml, header, message, argv, capsys):
    add(root, "lazy", LAZY, header)
    (root / "conf" / "variant" / "lazy.yaml").write_text(yaml)
    assert run_task(lambda cfg: int(resolve(cfg, root) is None), "config", argv, root) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_header_that_is_not_text_is_reported(root):
    (root / "variants" / "lazy.cu").write_bytes(b"// Idea \xff")
    assert "lazy.cu cannot be read" in str(read_catalog(root).broken["lazy"])


def test_an_idea_goes_on_in_indented_lines(root):
    add(
        root,
        "lazy",
        LAZY,
        HEADER.replace("{idea}", "it is free\n//             of charge\n//  now"),
    )
    assert read_catalog(root).variants["lazy"].idea == "it is free of charge now"


def test_a_broken_variant_does_not_affect_the_others(root):
    (root / "variants" / "orphan.cu").write_text("")
    catalog = read_catalog(root)
    assert choose_stacks(catalog, "warp_split", None, {}, 256)[0].variants == ("warp_split",)
    for name, listed in (("orphan", None), ("all", None), ("all", ["lazy", "orphan"])):
        with pytest.raises(LabError, match=r"orphan.cu has no conf/variant/orphan.yaml"):
            choose_stacks(catalog, name, listed, {}, 256)


@pytest.mark.parametrize(("key", "said"), [("outside", "must stand outside of"), ("requires", "need")])
def test_variants_that_stand_outside_of_each_other_or_need_each_other_are_refused(root, key, said):
    names = ["lazy", "warp_split"]
    for name, other in zip(names, reversed(names), strict=True):
        yaml = root / "conf" / "variant" / f"{name}.yaml"
        yaml.write_text(f"{key}: [{other}]\n{yaml.read_text()}")
    with pytest.raises(LabError, match=f"lazy and warp_split {said} each other; correct `{key}`"):
        choose_stacks(read_catalog(root), "", names, {}, 256)


@pytest.mark.parametrize(
    ("body", "yaml", "refused"),
    [("", "", True), ("", "outside: [inner]\n", False), ("Base::attention(c, layer);", "", False)],
)
def test_a_variant_that_hides_an_override_of_another_one_is_refused(root, body, yaml, refused):
    add(root, "inner", "")
    add(root, "outer", yaml, HEADER.replace("Base::attention(c, layer);", body))
    with pytest.raises(LabError, match="outer replaces attention of inner") if refused else nullcontext():
        choose_stacks(read_catalog(root), "", ["inner", "outer"], {}, 256)


@pytest.mark.parametrize(
    ("group", "text", "said"),
    [
        ("experiment", "task: counts\n", "the experiment's yaml has no `# @package _global_`"),
        ("model", (ROOT / "conf/model/tiny.yaml").read_text() + "format: int4\n", "unknown key 'model.format'"),
    ],
)
def test_a_key_that_would_have_no_effect_is_refused(root, group, text, said):
    (root / "conf" / group / "copied.yaml").write_text(text)
    with pytest.raises(LabError, match=said):
        resolve(composed("config", [f"{group}=copied", "variant=warp_split", "device=ptx"], root), root)


def test_no_knob_has_the_name_of_a_key_of_another_command():
    keys = {key for path in (ROOT / "conf").glob("*.yaml") for key in OmegaConf.load(path)}
    assert {"tool", "max_tokens", "archs"} <= keys
    assert not keys & read_catalog().knobs


def test_a_yaml_without_source_is_broken(root):
    add(root, "ghost", LAZY, header="")
    assert "ghost.yaml has neither variants/ghost.cu" in str(read_catalog(root).broken["ghost"])


def test_a_named_stack_sets_only_knobs_of_its_variants(root):
    (root / "conf" / "variant" / "both.yaml").write_text(BOTH.replace("how: ldg", "how: ldg, ratoi: 2"))
    with pytest.raises(LabError, match=r"both sets ratoi.*known: bytes, how, matrices, ratio"):
        choose_stacks(read_catalog(root), "both", None, {}, 256)


@pytest.mark.parametrize(
    ("value", "threads", "constants"),
    [
        ("2:6", 256, {"producers": 2, "consumers": 6}),
        ("7:1", 256, {"producers": 7, "consumers": 1}),
        ("4:12", 512, {"producers": 4, "consumers": 12}),
        ("0:1", 32, {"producers": 0, "consumers": 1}),
    ],
)
def test_ratios(value, threads, constants):
    assert Knob("ratio", "ratio", "2:6", "").constants(value, threads) == constants


@pytest.mark.parametrize("value", ["8:0", "3:4", "a:b", "-1:9", "2:6:1", " 2:6", "", "2", "²:6", None, 2.5, [2, 6]])
def test_wrong_ratios_are_refused(value):
    with pytest.raises(LabError, match="P:C"):
        Knob("ratio", "ratio", "2:6", "").constants(value, 256)


def test_knobs_become_constants():
    matrices = Knob("matrices", "list", [], "", choices=("o", "gate", "down"))
    assert matrices.constants(["down", "o"], 256) == {"matrices_o": 1, "matrices_gate": 0, "matrices_down": 1}
    assert matrices.constants("gate", 256) == {"matrices_o": 0, "matrices_gate": 1, "matrices_down": 0}
    assert matrices.constants([], 256) == {"matrices_o": 0, "matrices_gate": 0, "matrices_down": 0}
    assert Knob("how", "choice", "ldg", "", choices=("prefetch", "ldg")).constants("ldg", 256) == {"how": "ldg"}
    assert Knob("tile", "choice", 32, "", choices=(32, 64)).constants("64", 256) == {"tile": 64}
    assert Knob("stages", "int", 2, "", minimum=2, maximum=4).constants(4, 256) == {"stages": 4}


def test_regions_of_scratch_are_those_of_the_stack(tiny):
    known = read_catalog().variants
    other = replace(known["vec128"], scratch={"mail": ("2", "taps"), "mine": ("4", "2 * heads")})
    layout = build([known["by_value"], other], tiny).layout
    assert {name: slot.shape for name, slot in layout.regions.items()} == {"mail": (2, 2560), "mine": (4, 8)}
    assert "mine_size = 8;" in layout.declare()
    assert build([], tiny).layout.regions == {}
    with pytest.raises(LabError, match=r"vec128 declares scratch.mail as \['4'\], another variant as \['2', 'taps'\]"):
        build([known["by_value"], replace(other, scratch={"mail": ("4",)})], tiny)
    with pytest.raises(LabError, match=r"scratch.mine is \[2, -1\] for model tiny; "):
        build([replace(other, scratch={"mine": ("2", "heads - 5")})], tiny)
    with pytest.raises(LabError, match=r"scratch.mine is \[3, 4\] for model tiny; give a power of 2 of turns"):
        build([replace(other, scratch={"mine": ("3", "heads")})], tiny)
    with pytest.raises(LabError, match=r"8 // \(heads - 4\)'\], a division by 0 for model tiny; "):
        build([replace(other, scratch={"mine": ("2", "8 // (heads - 4)")})], tiny)
