"""The catalog: variants are found by two new files, and a yaml that is wrong is named."""

import pytest
from temporary_root import LAZY, WARP_SPLIT, add, make_root

from common.catalog import ROOT, read_catalog, variants
from common.errors import LabError
from common.knobs import Knob
from common.stack import choose_stacks


@pytest.fixture
def root(tmp_path):
    return make_root(tmp_path)


def test_two_new_files_are_a_variant(root):
    before = set(variants(root))
    read_catalog.cache_clear()
    add(root, WARP_SPLIT.replace("warp_split", "fused_head2"), 'ratio: "1:7"\n')
    found = variants(root)
    assert set(found) - before == {"fused_head2"}
    added = found["fused_head2"]
    assert (added.mixin, added.file.name) == ("FusedHead2", "fused_head2.cu")
    assert added.knobs[0].default == "1:7"
    assert (added.parent, added.launch, added.bit_equal, added.excludes) == ((), "cooperative", True, ())


def test_baseline_comes_first_and_named_stacks_apart(root):
    catalog = read_catalog(root)
    assert list(catalog.variants) == ["baseline", "lazy", "prefetch", "warp_split"]
    assert catalog.stacks["both"].variants == ("warp_split", "prefetch")
    assert catalog.stacks["both"].knobs == {"how": "ldg"}
    assert set(catalog.selections) == {"all"}
    assert catalog.takers("ratio") == ["warp_split"]


def test_fields_are_read(root):
    lazy, prefetch = (variants(root)[name] for name in ("lazy", "prefetch"))
    assert (lazy.launch, lazy.min_arch, lazy.bit_equal) == ("plain", 75, False)
    assert lazy.why_not_bit_equal == "it sums in another order"
    assert (prefetch.parent, prefetch.overrides, prefetch.excludes) == (("warp_split",), ("attention",), ("lazy",))
    assert {knob.name: knob.kind for knob in prefetch.knobs} == {"how": "choice", "matrices": "list", "bytes": "int"}


def test_every_shipped_variant_has_both_files():
    catalog = read_catalog()
    assert not catalog.broken
    assert set(catalog.variants) == {path.stem for path in (ROOT / "variants").glob("*.cu")}
    assert "baseline" in catalog.variants


@pytest.mark.parametrize(
    ("old", "new", "values", "said"),
    [
        ("name: lazy", "name: lasy", "", "lasy"),
        ("idea: fetch nothing", "ideas: fetch nothing", "", "idea"),
        ("launch: plain", "launch: alone", "", "cooperative, plain"),
        ("min_arch: 75", "min_arch: sm_75", "", "min_arch: sm_75"),
        ("min_arch: 75", "min_arch: 75\n  colour: red", "", "colour"),
        ("bit_equal: false", "bit_equal: true", "", "bit_equal"),
        ("  why_not_bit_equal: it sums in another order\n", "", "", "bit_equal"),
        ("min_arch: 75", "min_arch: 75\n  parent: [nobody]", "", "nobody"),
        ("min_arch: 75", "min_arch: 75\n  excludes: nobody", "", "excludes"),
        ("min_arch: 75", "min_arch: [", "", "not YAML"),
        ("", "", "spare: 3\n", "spare"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {n: {kind: int, help: x}}", "", "knob n"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {n: {kind: float, help: x}}", "n: 1\n", "float"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {n: {kind: int, top: 3, help: x}}", "n: 1\n", "top"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {n: {kind: choice, help: x}}", "n: 1\n", "choices"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {n: {kind: int, maximum: 3, help: x}}", "n: 4\n", "n=4"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {seed: {kind: int, help: x}}", "seed: 4\n", "seed"),
        ("min_arch: 75", "min_arch: 75\n  knobs: {r: {kind: ratio, help: x}}", "r: 2:6\n", "unquoted 2:6"),
    ],
)
def test_a_wrong_yaml_is_named(root, old, new, values, said):
    block = LAZY.replace(old, new)
    assert block != LAZY or values
    path = root / "conf" / "variant" / "lazy.yaml"
    path.write_text(f"# @package _global_\nvariant:{block}{values}")
    catalog = read_catalog(root)
    assert list(catalog.broken) == ["lazy"]
    assert said in str(catalog.broken["lazy"])
    assert "lazy.yaml" in str(catalog.broken["lazy"])


def test_a_broken_variant_costs_only_itself(root):
    (root / "variants" / "orphan.cu").write_text("")
    catalog = read_catalog(root)
    assert choose_stacks(catalog, "warp_split", None, {}, 256)[0].variants == ("warp_split",)
    for name, listed in (("orphan", None), ("all", None), ("all", ["lazy", "orphan"])):
        with pytest.raises(LabError, match=r"orphan.cu has no conf/variant/orphan.yaml"):
            choose_stacks(catalog, name, listed, {}, 256)


def test_a_yaml_alone_is_broken(root):
    add(root, LAZY.replace("lazy", "ghost"), source=False)
    assert "ghost.yaml has neither variants/ghost.cu" in str(read_catalog(root).broken["ghost"])


def test_the_package_line_is_required(root):
    (root / "conf" / "variant" / "lazy.yaml").write_text("variant:" + LAZY)
    assert "@package _global_" in str(read_catalog(root).broken["lazy"])


def test_a_named_stack_sets_only_knobs_of_its_variants(root):
    path = root / "conf" / "variant" / "both.yaml"
    path.write_text(path.read_text() + "ratoi: 2\n")
    with pytest.raises(LabError, match=r"both sets ratoi.*known: bytes, how, matrices, ratio"):
        choose_stacks(read_catalog(root), "both", None, {}, 256)


@pytest.mark.parametrize(
    ("value", "threads", "constants"),
    [
        ("2:6", 256, {"producers": 2, "consumers": 6}),
        ("0:8", 256, {"producers": 0, "consumers": 8}),
        ("7:1", 256, {"producers": 7, "consumers": 1}),
        ("4:12", 512, {"producers": 4, "consumers": 12}),
        ("0:1", 32, {"producers": 0, "consumers": 1}),
    ],
)
def test_ratios(value, threads, constants):
    assert Knob("ratio", "ratio", "2:6", "").constants(value, threads) == constants


@pytest.mark.parametrize("value", ["8:0", "3:4", "a:b", "-1:9", "2:6:1", " 2:6", "", "2", "²:6", None, 2.5, [2, 6]])
def test_ratios_that_are_refused(value):
    with pytest.raises(LabError, match="P:C"):
        Knob("ratio", "ratio", "2:6", "").constants(value, 256)


def test_the_number_that_yaml_makes_of_a_ratio_is_explained():
    with pytest.raises(LabError, match=r'ratio=126 .* unquoted 2:6 as 126.* quote it: "2:6"'):
        Knob("ratio", "ratio", "2:6", "").constants(126, 256)


def test_knobs_become_constants():
    matrices = Knob("matrices", "list", [], "", choices=("o", "gate", "down"))
    assert matrices.constants(["down", "o"], 256) == {"matrices_o": 1, "matrices_gate": 0, "matrices_down": 1}
    assert matrices.constants("gate", 256) == {"matrices_o": 0, "matrices_gate": 1, "matrices_down": 0}
    assert matrices.constants([], 256) == {"matrices_o": 0, "matrices_gate": 0, "matrices_down": 0}
    assert Knob("how", "choice", "ldg", "", choices=("prefetch", "ldg")).constants("ldg", 256) == {"how": "ldg"}
    assert Knob("tile", "choice", 32, "", choices=(32, 64)).constants("64", 256) == {"tile": 64}
    assert Knob("stages", "int", 2, "", minimum=2, maximum=4).constants(4, 256) == {"stages": 4}


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        (Knob("stages", "int", 2, "", minimum=2, maximum=4), 5),
        (Knob("stages", "int", 2, "", minimum=2, maximum=4), 1),
        (Knob("stages", "int", 2, ""), "2"),
        (Knob("stages", "int", 2, ""), True),
        (Knob("how", "choice", "a", "", choices=("a", "b")), "c"),
        (Knob("matrices", "list", [], "", choices=("a", "b")), ["a", "c"]),
        (Knob("matrices", "list", [], "", choices=("a", "b")), ["a", "a"]),
    ],
)
def test_knob_values_that_are_refused(knob, value):
    with pytest.raises(LabError, match=knob.name):
        knob.constants(value, 256)
