"""Mutation operators: what they change, and that the validation finds it. `make soak` judges a larger part."""

import os
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sampled import seed_for

from common import ROOT
from common.validate.trials import chosen
from tests.strength.excuses import excuses
from tests.strength.mutants.__main__ import judged
from tests.strength.mutants.equivalent import RULES
from tests.strength.mutants.generated import AREA, drawn, equivalent, generate, mutants_of
from tests.strength.mutants.judge import PLAIN, SAME_CODE, SURVIVED, Judged, judge, judge_each
from tests.strength.mutants.mutation import Edit, Mutant, source_of
from tests.strength.mutants.operators import OPERATORS, code
from tests.strength.mutants.score import Score, summary

SOURCES = [*(ROOT / "common" / "kernel").glob("*.cuh"), *(ROOT / "variants").glob("*.cu")]
SAMPLE = 2  # faults judged in a test run; `make soak` judges hundreds of mutants
FOUND = 1 / 2  # share of the faults among them: of 2, fewer by chance once in 1,100 runs if 97 % are found at large


@pytest.fixture(scope="module")
def mutants() -> tuple[Mutant, ...]:
    """All of them. They take half a second, which only one worker need spend."""
    return tuple(generate())


# For each operator a line and all that it makes of it.
EXAMPLES = {
    "stride doubled": ("for (int i = 0; i < n; i += 32) f(i);", {"for (int i = 0; i < n; i += 2 * (32)) f(i);"}),
    "boundary moved": (
        "if (i < n && j >= 2) f<int>();",
        {"if (i <= n && j >= 2) f<int>();", "if (i < n && j > 2) f<int>();"},
    ),
    "bound off by one": ("g = i < n;", {"g = i < -1 + n;"}),
    "equality inverted": ("g = i == n;", {"g = i != n;"}),
    "index off by one": ("a[i] = f([&] { return 1; });", {"a[1 + i] = f([&] { return 1; });"}),
    "constant changed": ("i = 7u;", {"i = 8u;", "i = 6u;"}),
    "float constant doubled": ("x = 0.5f;", {"x = (2 * 0.5f);"}),
    "mask narrowed": ("i &= 0xf0u;", {"i &= (0xf0u >> 1);", "i &= (0xf0u << 1);"}),
    "synchronization dropped": ("f(); block_barrier();", {"f(); ;"}),
    "operands swapped": ("i = f(a) - b[2] * c;", {"i = b[2] - f(a) * c;"}),
    "arguments swapped": ("f(c, i, j);", {"f(c, j, i);"}),
    "branch forced": ("if (a(b)) f();", {"if (true) f();", "if (false) f();"}),
    "loop skipped": ("for (int i = 0; i < n; ++i) f(i);", {"for (int i = 0; false; ++i) f(i);"}),
    "initial value changed": ("const int i = n, j = m;", {"const int i = 1 + n, j = m;"}),
    "arithmetic replaced": ("const float *p = a + b;", {"const float *p = a - b;"}),
    "sign dropped": ("x = -y;", {"x = y;"}),
    "name replaced": ("x = fmaxf(y, z);", {"x = fminf(y, z);"}),
    "statement deleted": ("if (a) f(b); int x = 3;", {"if (a) ; int x = 3;"}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operator_makes_these_mutants_of_a_line(name):
    line, wanted = EXAMPLES[name]
    (operator,) = (operator for operator in OPERATORS if operator.name == name)
    text = f"{{\n{line}\n}}\n"
    made = {text[:start] + new + text[end:] for start, end, new in operator.edits(code(text))}
    assert made == {f"{{\n{other}\n}}\n" for other in wanted}


@pytest.mark.parametrize(
    ("line", "orders"),
    [
        ("x = add_acq_rel(word, 1);", ["RELAXED", "ACQUIRE", "RELEASE"]),
        ("x = load_acquire(word + n(c));", ["RELAXED", "volatile"]),
        ("store_release(word, x + 1);", ["RELAXED"]),
        ("block_barrier();", ["__syncwarp"]),
        ("Self::template barrier<S>(c, layer);", ["block_barrier"]),
    ],
)
def test_a_memory_order_or_a_scope_is_weakened(line, orders):
    made = [edit.edits[0].new for edit in mutants_of("x.cu", f"{line}\n") if "weakened" in edit.kind]
    assert len(made) == len(orders)
    assert all(re.search(order, text) for order, text in zip(orders, made, strict=True))


def test_nothing_is_made_of_what_is_no_device_code():
    text = (
        '// a < b\n#define X(i) \\\n  a + i\n#include "a - b"\nstatic_assert(1 < 2, "a");\n'
        "template <int N = 3> struct A;\nUNROLL\n"
    )
    assert not list(mutants_of("x.cu", text))
    swapped = mutants_of("x.cu", 'asm("a" : "=r"(x), "=r"(y));\nf(1, "b");\n')
    assert not [mutant for mutant in swapped if "\0" in mutant.edits[0].new]


def test_every_operator_has_mutants_and_none_is_made_twice(mutants):
    assert {mutant.kind for mutant in mutants} == {operator.name for operator in OPERATORS}
    assert len(mutants) > 2000
    assert len({(mutant.edits, mutant.stack) for mutant in mutants}) == len(mutants)


def test_an_edit_changes_its_lines_of_the_flattened_text_only(mutants, seed):
    for mutant in drawn(mutants, 100, seed):
        before, after = (source_of(each).text.split("\n") for each in (replace(mutant, edits=()), mutant))
        changed = {old for old, new in zip(before, after, strict=True) if old != new}
        assert changed, mutant.name
        assert changed <= set(mutant.edits[0].old.split("\n")), mutant.name


def test_every_rule_and_every_comment_about_equivalents_is_about_some_mutant(mutants):
    needed = {why for *_, why in RULES}
    for path in SOURCES:
        for whys in excuses(str(path.relative_to(ROOT)), "equivalent").values():
            needed |= {why.rpartition(": ")[2] for why in whys}
    assert needed <= {equivalent(mutant).rpartition(": ")[2] for mutant in mutants}


@pytest.mark.cpu
@pytest.mark.timeout(1800)  # an idle machine needs two minutes
def test_the_validation_finds_them(mutants, cpu_cache):
    seed = seed_for("operators")
    order = drawn([mutant for mutant in mutants if not equivalent(mutant)], len(mutants), seed)
    found: list[Judged] = []
    while (score := Score(found)).faults < SAMPLE:
        some = order[len(found) : len(found) + SAMPLE - score.faults]
        found += judge_each(some, seed, cpu_cache, os.cpu_count() or 1)
    assert score.share("full") >= FOUND, (seed, [one.title for one in score.survivors])
    *rows, total = summary(found, len(mutants)).rows
    for column in ("tried", "not compiled", "same code", "equivalent", "faults", "plain", "full", "survived"):
        assert sum(row[column] for row in rows) == total[column]


@pytest.mark.cpu
@pytest.mark.parametrize(("new", "fate"), [("stride + 0 - 1", SAME_CODE), ("0", PLAIN)])
def test_a_mutant_with_the_code_of_the_original_is_no_fault(new, fate, cpu_cache, monkeypatch):
    """Packets of a norm, rounded up, with a 0 more; and rounded down, so that the last elements are left out."""
    monkeypatch.setattr("tests.strength.mutants.judge.chosen", lambda amount: chosen("plain")[:1])
    monkeypatch.setattr("tests.strength.mutants.judge.stacks", lambda file: ((),))
    edit = Edit("common/kernel/norm.cuh", "model::hidden + stride - 1", f"model::hidden + {new}")
    assert judge(Mutant("packets", "by hand", AREA, ("baseline",), (edit,)), 1, cpu_cache).fate == fate


def test_a_mutant_that_was_judged_is_not_judged_again(mutants, tmp_path, monkeypatch):
    """And what has a reason is not at all."""
    some, tried = [*[mutant for mutant in mutants if not equivalent(mutant)][:3]], []

    def judge_each(these, *_):
        tried.append(len(these))
        return [Judged(one, PLAIN if one is not some[0] else SURVIVED, "so") for one in reversed(these)]

    monkeypatch.setattr("tests.strength.mutants.__main__.judge_each", judge_each)
    wanted = SimpleNamespace(seed=1, cache=tmp_path, processes=1)
    harmless = replace(some[0], expect="equivalent", area="", reason="it is")
    first, second, third = (judged(these, wanted, print) for these in (some[:2], some, [*some[1:], harmless]))
    assert tried == [2, 1, 0]
    assert first == second[:2]
    assert third[:2] == second[1:]
    assert Score(third).equivalent == third[2:]


FATES = {"not compiled": 1, "same code": 2, "plain": 5, "full": 3, "race": 1, "survived": 1}


def test_the_score_is_that_of_the_faults(mutants):
    """Ten mutants that differ from the kernel, nine of them found; four without a difference of their own."""
    fault = next(mutant for mutant in mutants if not equivalent(mutant))
    found = [Judged(fault, fate) for fate, count in FATES.items() for _ in range(count)]
    harmless = next(mutant for mutant in mutants if equivalent(mutant))
    score = Score([*found, Judged(harmless, "survived")])
    assert (score.faults, score.share("plain"), score.share("full")) == (10, 0.5, 0.9)
    assert not score.reached
    table = summary(found, 100)
    assert [note for note in table.notes if note.startswith("survived")] == [f"survived: {found[-1].title}: survived"]
