"""`variant=best`: the stack that a search found for this GPU, else the documented default."""

import re
from functools import partial

import pytest
from temporary_root import add, make_root

import experiments.run.choice
from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks

GPU = "GPU of this test"
BEST = "selects: best\ndefault: both\n"


@pytest.fixture
def best(tmp_path, monkeypatch):
    """best(gpu=, **given): the stack that `variant=best` selects."""
    root = make_root(tmp_path)
    add(root, "best", BEST, header="")

    def choose(gpu=GPU, threads=256, **given):
        def find():
            if gpu is None:
                raise LabError("no GPU", "use device=ptx")
            return gpu

        monkeypatch.setattr(experiments.run.choice, "find_gpu", find)
        read_catalog.cache_clear()
        catalog = read_catalog(root)
        fastest = partial(experiments.run.choice.fastest_stack, catalog, threads)
        (stack,) = choose_stacks(catalog, "best", None, given, threads, fastest)
        return stack

    return choose


FOUND = """\
idea: what a search found
stack: [warp_split]
knobs: {ratio: "1:7"}
tuned: {gpu: GPU of this test, model: qwen3_0_6b, position: 1, threads: 256}
"""


def test_the_shipped_default_can_be_composed():
    (stack,) = choose_stacks(read_catalog(), "best", None, {}, 256)
    assert stack.name == read_catalog().selections["best"].default
    assert len(stack.variants) > 1


def test_what_a_search_found_for_this_gpu_is_taken(best, tmp_path):
    add(tmp_path, "tuned_here", FOUND, header="")
    stack = best()
    assert (stack.name, stack.variants) == ("tuned_here", ("warp_split",))
    catalog = read_catalog(tmp_path)
    assert choose_stacks(catalog, "tuned_here", None, {}, 256) == (stack,)
    assert "tuned_here" not in catalog.stacks  # another block size: nothing that takes all stacks could run
    assert stack.knobs["warp_split"] == {"producers": 1, "consumers": 7}
    assert best(ratio="2:6").knobs["warp_split"] == {"producers": 2, "consumers": 6}
    assert best(gpu=None).name == "both"


@pytest.mark.parametrize("other", ["gpu: another", "model: tiny", "position: 200", "threads: 512"])
def test_what_a_search_found_for_something_else_is_not_taken(best, tmp_path, other):
    field = other.split(":")[0]
    add(tmp_path, "tuned_here", re.sub(rf"{field}: [^,}}]+(?=[,}}][^{{]*$)", other, FOUND), header="")
    assert best().name == "both"
