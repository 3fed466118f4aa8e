"""Kinds of memory are types: a load, a copy or a store of the wrong buffer does not compile; the error names it."""

import pytest
from bare_kernel import bare_kernel

from common.compile.nvrtc import compile_ptx
from common.errors import CompileError
from common.model.shapes import Model

SHARED = "alignas(16) bf16 tile[64]; Mbarrier full;"
RIGHT = {
    "weights": "*out = load_weight(c.weights) + __uint_as_float(load_weights<4>(c.weights).word[0]);",
    "cache": "*out = __uint_as_float(load_packet<4>(keys(c, 0, 0)).word[0]); keys(c, 0, 0)[0] = EntryUnit();",
    "copies": """SlotCopies<true>::copy(s.tile, c.weights, 16, &s.full);
    SlotCopies<true>::copy(s.tile, keys(c, 0, 0), 16, &s.full);""",
}
WRONG = {  # a body, and the types that the error names
    "*out = load_weight(c.cache);": ("Cache *", "const Weight *"),
    "*out = load_weight(c.scratch);": ("float *", "const Weight *"),
    "*out = load_weights<4>(c.scratch).word[0];": ("float *", "const Weight *"),
    "*out = load_weights<4>(c.state).word[0];": ("unsigned int *", "const Weight *"),
    "*out = load_weights<8>(keys(c, 0, 0)).word[0];": ("EntryUnit *", "const Weight *"),
    "*out = load_weights<4>(s.tile).word[0];": ("(bf16 [64])", "const Weight *"),
    "*out = __ldg(keys(c, 0, 0));": ("__ldg", "EntryUnit *"),
    "*out = __ldg(c.cache);": ("__ldg", "Cache *"),
    "c.weights[0] = Weight();": ("must be a modifiable lvalue",),
    "store_packet<4>(c.weights, {});": ("store_packet", "const Weight *"),
    "store_relaxed(c.weights, 0);": ("const Weight *", "float *"),
    "store_relaxed(c.state, 0);": ("unsigned int *", "float *"),
    "store_release(c.scratch, 0);": ("float *", "unsigned int *"),
    "keys(c, 0, 0)[0] = 0;": ("int", "Unit"),
    "*c.cache = to_bf16(1);": ("bf16", "Cache"),
    "SlotCopies<true>::copy(s.tile, c.scratch, 16, &s.full);": ("deleted function",),
    "SlotCopies<false>::copy(s.tile, out, 16, &s.full);": ("deleted function",),
}


def compiled(model: Model, body: str) -> str:
    return compile_ptx(bare_kernel(model, body, SHARED).text, "sm_90")


@pytest.mark.parametrize("kind", RIGHT)
def test_the_right_kind_compiles(kind, tiny):
    assert ".entry" in compiled(tiny, RIGHT[kind])


@pytest.mark.parametrize("body", WRONG)
def test_the_wrong_kind_does_not(body, tiny):
    with pytest.raises(CompileError) as refused:
        compiled(tiny, body)
    assert all(each in refused.value.report for each in WRONG[body])
