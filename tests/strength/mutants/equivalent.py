"""Mutants by operator that are no faults, since no result depends on what they change.

Rules say so of many lines; of one line a comment in its text does: `// equivalent: CHANGES: why`, with the operators or
changes (`old -> new`) that it is about, joined by `or`; without them it is about every change of the line.
"""

import re

from tests.strength.excuses import excuses
from tests.strength.mutants.operators import OPERATORS

WAITS = "it pauses, reports, or bounds a wait that a correct kernel ends: tests/ptx/test_waiting.py"
# No mutants are made of these lines, which only change the time a kernel takes, or what a report says.
NO_RESULT = (
    (r"common/kernel/trace\.cuh", ""),  # only in the text of a traced kernel, which is not timed
    (r"variants/(productive_spin|graph|head_prefetch|hot_l2)\.cu", ""),  # counted: tests/ptx/test_counts.py
    (r"variants/l2_prefetch\.cu", r"^(?!.*Base::template perform)"),
    (r"variants/.*", r"in_l2|L1 load_l1 = |attention_blocks|tasks"),
    (r"common/kernel/barrier\.cuh", r"__nanosleep|spin_limit|polls|mine\[|\*mine|report|const unsigned arrived"),
    (
        r"common/kernel/(mail|choice|split_softmax|sums)\.cuh|variants/value_token\.cu",
        r"missing|incomplete|report|waited_for",
    ),
    (r"common/kernel/sums\.cuh", r"addend_limit|0x7fc00000u"),  # addends that no trial has: tests/ptx/test_sums.py
)
# Regular expressions in a line, and of all of `operator: old -> new`; and why no result differs.
RULES = (
    (
        r"^\s*alignas\(16\) \w|float (max|sums)\[block_warps\]|Best (best|candidate)\[block_warps\]",
        r".*",
        "an array larger than needed; one that is smaller is overrun, which is found",
    ),
    (
        r"^\s*(?!return )([\w:]+(<\w+>)?|decltype\(.*\)) \w+\[[^;={}]*( = \{\})?;",
        r"index off by one: .*|.*: (4 -> [35]|2 -> 3|1 -> 2|block_warps -> (block_threads|32))",
        "an array larger than needed; one that is smaller is overrun, which is found",
    ),
    (
        r"constexpr int (most|at_once|padded|together|warp_groups|most_sums) =",
        r".*",
        "how many share something, or are done at once, decides the time; too many have no room, which is found",
    ),
    (
        r"constexpr int (group = (packets|Split)|rows = (Often|knob)|turns =|.* rows = group)",
        r"(branch forced|boundary moved|bound off by one|constant|initial value|operands).*|.*: \* -> \+",
        "how many share something, or are done at once, decides the time; too many have no room, which is found",
    ),
    (
        r"< Row::columns|at\(p\) >= model::hidden|i < N;|j < Bytes / 2|::size; i|< Job::K|stride < size|\+= 32 \* 4|"
        r"own\(4 \* turn\) < columns",
        r"bound off by one: .*",
        "the index is a multiple of the width of a load, and so is the bound",
    ),
    (
        r"p < (Split::per_lane|packets); \+\+p|packet >= Split::packets|constexpr int pairs =",
        r"(boundary moved|initial value changed): .*",
        "the additional packet or pair is beyond the last, and skipped",
    ),
    (
        r"i < (model::head_dim|Tap<S>::size|lines \* line); i|b < int\(gridDim\.x\); b|stride = 4 \* block_threads",
        r".*: (block_threads -> block_warps|\* -> [/+]|4 -> 3)",
        "with a smaller stride several threads make an element, and store the same value",
    ),
    (
        r"if \(lane\(\) == 0\) (emit|part)|if \(i != 0\) return;",
        r"(constant changed|equality inverted|branch forced): .*|.*: lane\(\) -> 0",
        "every lane, or thread, has the sum, and several store the same value",
    ),
    (r"block_barrier\(|after<|Stage::lm_head\)$", r"branch forced: .* -> true", "an additional barrier"),
    (r"Self::template barrier<|Base::template after<", r".*: layer -> 0", "a barrier only reports the layer"),
    (r"feed<Stage::lm_head>", r".*: 0 -> (1|\(-1\))", "the head belongs to no layer"),
    (r"", r"arguments swapped: (best|Best a|most\[w\]), .*", "the better of two is the same in either order"),
    (r"Best best\{negative_infinity", r".*: 0 -> (1|\(-1\))", "a logit is finite, so this index is never the best's"),
    (r"float max = .*, sum = 0;", r"(constant|initial value) changed: .*", "what saw no position is multiplied by 0"),
    (r"bool here\(Stage s\)", r"arithmetic replaced: .*", "the stack below makes a norm that is not here"),
    (
        r"if constexpr \(here\(S\)\)",
        r"branch forced: here\(S\) -> true",
        "a norm that every block makes is also stored by block 0, and read after the grid barrier",
    ),
    (
        r"(mail<S>|part|sums)\(c, c\.turn \+ 1",
        r".*: (\+ -> -|1 -> \(-1\))",
        "only whether a turn is even or odd decides the place",
    ),
    (
        r"if \(tile >= slots\) wait_for_phase",
        r"(bound off by one|boundary moved): .*|.*: tile >= slots -> true",
        "a slot that has not been used is free, and the phase before the first counts as complete",
    ),
    (r"if \(tile >= window\) wait_for_phase", r".*", "it only keeps the queue of memory short"),
    (r"\(int (m = 0; m < Job::ma|k = 0; k < pairs)", r".*: 0 -> \(-1\)", "no matrix or pair is before the first"),
    (r"lane\(\) % \d", r".*: lane\(\) -> threadIdx\.x", "a warp has a multiple of sixteen lanes"),
    (r"lane\(\) (/|>=) 16", r".*: (>= -> >= -1 \+|16 -> 15)", "lanes 15, 30 and 31 have no term, and store nothing"),
    (r"__shfl_xor_sync\(all_lanes, sum, 16\)", r".*: 16 -> 17", "four neighboring lanes have the same sum"),
)
_NAMES = {operator.name for operator in OPERATORS}


def has_no_result(file: str, line: str) -> bool:
    """True for a line of which no mutants are made."""
    return any(re.fullmatch(files, file) and re.search(lines, line) for files, lines in NO_RESULT)


def why_equivalent(file: str, number: int, line: str, operator: str, change: str) -> str:
    """Reason why a change of a line is no fault; "" if none is cursor."""
    told = f"{operator}: {change}"
    for lines, changes, why in RULES:
        if re.search(lines, line) and re.fullmatch(changes, told):
            return why
    for excuse in excuses(file, "equivalent").get(number, ()):
        about, _, why = excuse.partition(": ")
        some = about.split(" or ")
        if not all(" -> " in one or one in _NAMES for one in some):
            return excuse
        if {operator, change} & {*some}:
            return why
    return ""
