"""Calls of functions, on the PTX device."""

import numpy as np
import pytest
from test_opcodes import machine  # noqa: F401
from test_public_code import launched

from common.errors import CompileError

pytestmark = pytest.mark.cpu
# half(x): the sum of pair's halves, then x / 2, or 9 from 20 on; both(x): half(x) + half(x + 1), by memory of its own.
FUNCTIONS = """.func (.param .b32 r) half(.param .b32 x, .param .align 8 .b8 pair[8]) { .reg .b32 %r<9>; .reg .pred p;
.shared .b32 seen; ld.param.u32 %r1, [x]; ld.param.v2.u32 {%r2, %r3}, [pair+0]; setp.ge.u32 p, %r1, 20; @p bra far;
add.u32 %r4, %r2, %r3; shr.u32 %r1, %r1, 1; add.u32 %r4, %r4, %r1; st.param.b32 [r], %r4; ret;
far: st.param.b32 [r+0], 9; st.shared.u32 [seen], 1; }
.func (.param .b32 r) both(.param .b32 x) { .reg .b32 %r<9>; .local .align 4 .b8 own[8]; ld.param.u32 %r1, [x];
{ .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 c; st.param.b32 [a], %r1; st.param.v2.b32 [b], {100, 200};
call.uni (c), half, (a, b); ld.param.b32 %r2, [c]; st.local.u32 [own], %r2; } add.u32 %r1, %r1, 1;
{ .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 c; st.param.b32 [a], %r1; st.param.b32 [b], 1;
st.param.b32 [b+4], %r1; call (c), half, (a, b); ld.param.b32 %r2, [c]; } ld.local.u32 %r3, [own];
add.u32 %r2, %r2, %r3; st.param.b32 [r], %r2; }
.func stop() { .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.ne.u32 p, t, 7; @p ret; exit; }
.func again() { call again, (); }
.func never(.reg .b32 x) { ret; }"""
BOTH = "{ .param .b32 a; .param .b32 c; st.param.b32 [a], %r3; call (c), both, (a); ld.param.b32 %r2, [c]; }"
STORED_LANE = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2;"


def test_a_function_is_executed_where_it_is_called(machine, seed):  # noqa: F811
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, 1; setp.lt.u32 %p1, %r1, 3; @%p1 bra few; mov.u32 %r3, %r1; {BOTH}
    bra done; few: shl.b32 %r3, %r1, 3; {BOTH} done: call stop; {STORED_LANE}"""
    words = np.zeros(32, np.uint32)
    assert launched(machine, (FUNCTIONS, ""), body, words, seed=seed, races=True).report == ""

    def half(x, pair):
        return sum(pair) + x // 2 if x < 20 else 9

    of = [lane * 8 if lane < 3 else lane for lane in range(32)]
    assert words.tolist() == [half(x, (100, 200)) + half(x + 1, (1, x + 1)) if x != 7 else 0 for x in of]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("call again, ();", "again calls itself: recursion is not executed"),
        ("{ .param .b64 a; .param .b32 c; call (c), both, (a); }", "call with the operands"),
        ("{ .param .b32 a; .param .b32 c; call both, (c), (a); }", "call with the operands"),
    ],
)
def test_a_call_that_is_not_executed_is_refused(machine, call, said):  # noqa: F811
    with pytest.raises(CompileError, match=said):
        launched(machine, (FUNCTIONS, ""), call, np.zeros(4, np.uint32))


def test_a_register_hides_a_variable_of_its_name(machine):  # noqa: F811
    words, head = np.zeros(32, np.uint32), (".global .b32 x;", "")
    launched(machine, head, "{ .reg .b32 x; mov.b32 x, 5; mov.b32 %r2, x; } st.global.u32 [%rd1], %r2;", words, 1)
    assert words[0] == 5
