"""CUDA's rule of shuffles and barriers: lanes of a warp or threads of a block that meet at different ones are told."""

import re

import pytest

from common.errors import Crashed

pytestmark = pytest.mark.host
# Lines of the kernel, {a} and {b}: the first and the second of each case, which the token names.
HELPERS = (
    "auto wait = [&](int at) { out[at] = 1; port::block_barrier(); }; "
    "auto swap = [&](int at) { out[at] = port::shuffle_xor(out[at], 4); }; (void)wait; (void)swap;"
)
WRONG = {
    "two shuffles": (
        "if (lane() < 7) out[lane()] = port::shuffle_xor(1.0f, 1);",
        "else out[lane()] = port::shuffle_xor(2.0f, 1);",
        "lanes of a warp meet at different places: a shuffle at test:{x} with mask 1, and a shuffle at test:{y} with",
    ),
    "a shuffle and __syncwarp": (
        "if (lane() == 31) out[lane()] = port::shuffle_xor(1.0f, 2);",
        "else port::warp_barrier();",
        "lanes of a warp meet at different places: a (shuffle|barrier) at test:{x}(?: with mask 2)?, and a",
    ),
    "two masks": (
        "out[lane()] = port::shuffle_xor(1.0f, warp() == 1 && lane() > 20 ? 8 : 16);",
        "",
        "lanes of a warp meet at different places: a shuffle at test:{a} with mask (8|16), and a shuffle at test:{a}",
    ),
    "a mask beyond the warp": (
        "out[lane()] = port::shuffle_xor(1.0f, 32);",
        "",
        "a shuffle needs a mask of 0 to 31 at test:{a}",
    ),
    "two block barriers": (
        "if (warp() == 0) port::block_barrier();",
        "else port::block_barrier();",
        "threads of a block meet at different places: a barrier at test:{x}, and a barrier at test:{y}, the latter by",
    ),
    "two calls of one barrier": (
        "if (warp() == 0) wait(5);",
        "else { wait(7); out[0] = 1; }",
        "threads of a block meet at different places: test:1 called at test:{x} and test:1 called at test:{y}",
    ),
    "two calls of one shuffle": (
        "if (lane() == 0) { swap(5); out[1] = 2; }",
        "else swap(7);",
        "lanes of a warp meet at different places: test:1 called at test:{x} and test:1 called at test:{y}",
    ),
    "two named barriers in one warp": (
        "if (lane() < 16) port::named_sync(3, 64);",
        "else port::named_sync(3, 64);",
        "lanes of a warp meet at different places: a barrier at test:{x}, and a barrier at test:{y}",
    ),
    "half a warp arrives and half waits": (
        "if (lane() < 16) port::named_arrive(3, 64);",
        "else port::named_sync(3, 64);",
        "lanes of a warp meet at different places: a barrier at test:{x}, and a barrier at test:{y}",
    ),
    "a named barrier with the number of __syncthreads": (
        "port::named_sync(0, 64);",
        "",
        "a named barrier needs an id of 1 to 15 and whole warps at test:{a}",
    ),
}


def body() -> str:
    lines = [f"{HELPERS} switch (c.token) {{"]
    for number, (first, second, _) in enumerate(WRONG.values(), 1):
        lines += [f"case {number}:", first, f"{second} break;"]
    return "\n".join([*lines, "}"])


@pytest.mark.parametrize("name", WRONG)
def test_threads_that_meet_at_different_places_are_told(launch, name, seed):
    number = 1 + list(WRONG).index(name)
    a = 3 * number
    one, other = ({"x": a, "y": a + 1}, {"x": a + 1, "y": a})
    patterns = [WRONG[name][2].format(a=a, **lines) for lines in (one, other)]
    with pytest.raises(Crashed) as crashed:
        launch(body(), token=number, seed=seed)
    assert any(re.search(pattern, str(crashed.value)) for pattern in patterns), str(crashed.value)
