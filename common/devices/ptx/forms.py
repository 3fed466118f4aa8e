"""The instructions that are executed, by name: modifiers and types of each opcode, and its operands."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

_SETS = """
I u16/s16/u32/s32/u64/s64 ; I4 u32/s32/u64/s64 ; N u8/s8/u16/s16/u32/s32/u64/s64 ; B b16/b32/b64 ; H f16/f16x2
W bf16/bf16x2 ; F f16/bf16/f32/f64 ; E e4m3x2/e5m2x2 ; K f16/bf16/tf32/f32/s8/u8/s32
T b8/u8/s8/b16/u16/s16/b32/u32/s32/f32/b64/u64/s64/f64 ; RND rn/rz/rm/rp ; RNI rni/rzi/rmi/rpi ; REL eq/ne/lt/le/gt/ge
FREL eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ; BOOL and/or/xor ; ORD relaxed/acquire/release/acq_rel
SC cta/cluster/gpu/sys ; SH shared/shared::cta/shared::cluster ; AT global/shared/shared::cta/shared::cluster
ST global/shared/shared::cta/shared::cluster/local/param
SP global/shared/shared::cta/shared::cluster/local/param/const
EV1 L1::no_allocate/L1::evict_last/L1::evict_first/L1::evict_normal/L1::evict_unchanged
EV2 L2::evict_last/L2::evict_first/L2::evict_normal/L2::evict_unchanged ; SIZE L2::64B/L2::128B/L2::256B
HINT L2::cache_hint ; VEC v2/v4/v8 ; MNK m16n8k4/m16n8k8/m16n8k16/m16n8k32/m16n16k8/m16n16k16/m32n8k16/m8n32k16
"""
_NAMED = dict(map(str.split, re.split(r"\n| ; ", _SETS.strip())))
# Opcodes, with the words that always follow | modifiers in any order: `?` may be absent, and so may `+`, which adds an
# operand | types, last | kinds of the operands: `.` the last type, `to` the first, `wide` twice as wide; or how many.
# A comma separates alternatives.
_FORMS = """
add sub div rem min max | | I | . . . ; add min max | | s16x2/u16x2 | . . .
add sub mul | RND? ftz? sat? | f32, f64, H, W | . . . ; add sub addc subc | cc? | I4 | 3 ; mul | hi/lo | I | . . .
mul | wide | u16/s16/u32/s32 | wide . . ; mad | hi/lo | I | . . . . ; mad | wide | u16/s16/u32/s32 | wide . . wide
mad madc | hi/lo cc? | I4 | 4 ; div | approx/full/RND ftz? | f32/f64 | . . .
rcp sqrt | approx/RND ftz? | f32/f64 | . . ; rsqrt sin cos lg2 ex2 | approx ftz? | f32/f64 | . .
ex2 tanh | approx | H | . . ; ex2 | approx ftz | W | . . ; tanh | approx | f32, W | . .
fma | RND ftz? sat? relu? | f32/f64, H, W | . . . . ; min max | ftz? NaN? | f32/f64, H, W | . . .
min max | relu | s32/s16x2 | . . . ; neg abs | ftz? | s16/s32/s64, f32/f64, H, W | . . ; copysign | | f32/f64 | . . .
and or xor | | B/pred | . . . ; not | | B/pred | . . ; cnot | | B | . . ; shl | | B | . . u32 ; shr | | B, I | . . u32
brev | | b32/b64 | . . ; popc clz | | b32/b64 | u32 . ; bfind | shiftamt? | I4 | u32 . ; bfe | | I4 | . . u32 u32
bfi | | b32/b64 | . . . u32 u32 ; shf | l/r clamp/wrap | b32 | . . . u32 ; prmt | | b32 | . . . u32
fns | | b32 | . . u32 s32 ; bmsk | clamp | b32 | . u32 u32 ; lop3 | | b32 | 5 ; sad | | I | . . . .
vabsdiff2 vabsdiff4 | | u32 u32 u32, u32 u32 u32 add | u32 u32 u32 u32
dp4a | | u32/s32 u32/s32 | . . . . ; dp2a | lo/hi | u32/s32 u32/s32 | . . . . ; selp | | B/I/f32/f64 | . . . pred
set | FREL | f32 f32, H/u32 H, W/u32 W | to . . ; setp | eq/ne BOOL+ | B | 3 ; setp | REL BOOL+ | I | 3
setp | lo/ls/hi/hs BOOL+ | u16/u32/u64 | 3 ; setp | FREL BOOL+ ftz? | F | 3 ; mov | | B/I/f32/f64/pred | 2
cvt | sat? | N N | 2 ; cvt | RNI ftz? sat? | N F | 2 ; cvt | RND ftz? sat? | F N | 2
cvt | RND ftz? sat? relu? | f32/f16/bf16 f64, f16/bf16 f32, f16 bf16, bf16 f16 | 2
cvt | ftz? sat? | f64 f32/f16/bf16, f32 f16/bf16 | 2 ; cvt | RNI? ftz? sat? | f64 f64, f32 f32, f16 f16, bf16 bf16 | 2
cvt | rn/rz relu? | f16x2/bf16x2 f32 | 3 ; cvt | rna | tf32 f32 | b32 . ; cvt | rn satfinite relu? | E f32 | b16 . .
cvt | rn satfinite relu? | E f16x2 | b16 . ; cvt | rn relu? | f16x2 E | to b16 ; cvta cvta.to | SP | u64 | 2
isspacep | global/shared/local | | 2
ld | weak? SP? ca/cg/cs/lu/cv? HINT+ SIZE? VEC?, volatile SP? SIZE? VEC? | T | 2
ld | weak? global? EV1? EV2? HINT+ SIZE? VEC?, relaxed/acquire SC AT? EV1? EV2? HINT+ SIZE? VEC? | T | 2
ld | global nc ca/cg/cs? HINT+ SIZE? VEC?, global nc EV1? EV2? HINT+ SIZE? VEC? | T | 2
st | weak? ST? wb/cg/cs/wt? HINT+ VEC?, volatile ST? VEC? | T | 2
st | weak? global? EV1? EV2? HINT+ VEC?, relaxed/release SC AT? EV1? EV2? HINT+ VEC? | T | 2
atom red | add ORD? SC? AT? HINT+ | u32/s32/u64/f32/f64 | 2 3 ; atom red | add noftz ORD? SC? AT? HINT+ | H, W | 2 3
atom red | add VEC ORD? SC? global? HINT+ | f32 | 2 3 ; atom red | add noftz VEC ORD? SC? global? HINT+ | H, W | 2 3
atom red | min/max ORD? SC? AT? HINT+ | I4 | 2 3 ; atom red | BOOL ORD? SC? AT? HINT+ | b32/b64 | 2 3
atom red | inc/dec ORD? SC? AT? HINT+ | u32 | 2 3 ; atom | exch/cas ORD? SC? AT? HINT+ | B | 3 4
prefetch | global/local? L1/L2, global? L2::evict_last/L2::evict_normal | | 1
createpolicy.fractional | | EV2 b64, EV2 EV2 b64 | 1 2 ; createpolicy.cvt.L2 | | b64 | 2
mbarrier.init | shared/shared::cta? | b64 | 2 ; mbarrier.inval | shared/shared::cta? | b64 | 1
mbarrier.expect_tx | SH?, relaxed cta/cluster SH? | b64 | 2
mbarrier.arrive mbarrier.arrive_drop | SH?, release/relaxed cta/cluster SH? | b64 | 2 3
mbarrier.arrive.expect_tx | SH?, release/relaxed cta/cluster SH? | b64 | 3
mbarrier.test_wait mbarrier.test_wait.parity | SH?, acquire/relaxed cta/cluster SH? | b64 | 3
mbarrier.try_wait mbarrier.try_wait.parity | SH?, acquire/relaxed cta/cluster SH? | b64 | 3 4
cp.async.ca.shared cp.async.ca.shared::cta cp.async.cg.shared cp.async.cg.shared::cta | global HINT+ SIZE? | | 3 4
cp.async.commit_group cp.async.wait_all | | | 0 ; cp.async.wait_group | | | 1
cp.async.mbarrier.arrive cp.async.mbarrier.arrive.noinc | shared/shared::cta? | b64 | 1
cp.async.bulk.shared::cta cp.async.bulk.shared::cluster | global mbarrier::complete_tx::bytes HINT+ | | 4
cp.async.bulk.prefetch.L2 | global HINT+ | | 2 ; fence | sc/acq_rel/acquire/release SC | | 0
fence.proxy.async | global/shared::cta/shared::cluster? | | 0 ; fence.mbarrier_init.release | cluster | | 0
membar | cta/gl/sys | | 0 ; bar.warp.sync | | | 1
bar.sync bar.cta.sync barrier.sync barrier.cta.sync barrier.sync.aligned barrier.cta.sync.aligned | | | 1 2
bar.arrive bar.cta.arrive barrier.arrive barrier.cta.arrive barrier.arrive.aligned barrier.cta.arrive.aligned | | | 2
bar.red bar.cta.red | popc | u32 | 3 4 ; bar.red bar.cta.red | and/or | pred | 3 4
barrier.red barrier.cta.red | popc aligned? | u32 | 3 4 ; barrier.red barrier.cta.red | and/or aligned? | pred | 3 4
shfl.sync | up/down/bfly/idx | b32 | 5 ; vote.sync | all/any/uni | pred | 3 ; vote.sync | ballot | b32 | 3
match.any.sync match.all.sync | | b32/b64 | 3 ; redux.sync | add/min/max | u32/s32 | 3 ; redux.sync | BOOL | b32 | 3
activemask | | b32 | 1 ; elect.sync | | | 2 ; bra | uni? | | 1 ; call | uni? | | 1 2 3 4 ; ret | uni? | | 0
exit trap | | | 0 ; nanosleep | | u32 | 1 ; griddepcontrol | wait/launch_dependents | | 0
ldmatrix.sync.aligned stmatrix.sync.aligned | m8n8 x1/x2/x4 trans? shared/shared::cta? | b16 | 2
mma.sync.aligned | | MNK row col K K K K, MNK row col satfinite s32 K K s32 | 4
wmma.load | a/b/c sync aligned row/col MNK AT? | K | 2 3 ; wmma.store.d | sync aligned row/col MNK AT? | K | 2 3
wmma.mma.sync.aligned | | row/col row/col MNK K K, row/col row/col MNK K K K K | 4
wmma.mma.sync.aligned | | row/col row/col MNK s32 K K s32 satfinite | 4
"""


@cache
def form_of(name: str) -> tuple[Sequence[str], Sequence[int], Sequence[str]] | None:
    """Opcode and modifiers of `add.rn.f32`, how many operands it may have, and their types if no rule of the opcode
    knows them. None if the name is none of PTX's, or not executed."""
    words = name.split(".")
    if words[-1] == "relu":  # NVRTC writes it behind the type
        words = [words[0], "relu", *words[1:-1]]
    for fixed, modifiers, types, operands in _rows().get(words[0], ()):
        start, end = len(fixed), len(words) - len(types)
        at = [next((k for k, one in enumerate(modifiers) if word in _any(one)), -1) for word in words[start:end]]
        needed = {k for k, one in enumerate(modifiers) if one[-1] not in "?+"}
        if end < start or words[:start] != fixed or -1 in at or len({*at}) < len(at) or not needed <= {*at}:
            continue
        last = words[end:]
        if all(word in _any(one) for word, one in zip(last, types, strict=True)):
            more = sum(modifiers[k][-1] == "+" for k in at)
            if operands[0].isdigit():
                return words, [int(each) + more for each in operands], ()
            own = {".": last[-1], "to": last[0], "wide": last[0].replace("32", "64").replace("16", "32")}
            return words, [len(operands)], [own.get(each, each) for each in operands]
    return None


@cache
def _any(token: str) -> frozenset[str]:
    """The words that a token of _FORMS stands for."""
    return frozenset(word for each in token.rstrip("?+").split("/") for word in _NAMED.get(each, each).split("/"))


@cache
def _rows() -> Mapping[str, Sequence[tuple[list[str], list[str], list[str], list[str]]]]:
    """_FORMS by opcode, without alternatives."""
    rows = defaultdict(list)
    for names, some, others, operands in (row.split("|") for row in re.split(r"\n| ; ", _FORMS.strip())):
        for name, modifiers, types in product(names.split(), some.split(","), others.split(",")):
            rows[name.partition(".")[0]].append((name.split("."), modifiers.split(), types.split(), operands.split()))
    return rows
