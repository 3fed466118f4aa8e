# ruff: noqa: N803  compile-time constants are in capitals
# mypy: disable-error-code="no-untyped-def"
"""Triton kernels of one decode step, one for each fused group of stages. Import it by `steps.kernels` only.

Sums are fp32. Operands in bf16 are read and written as their 16-bit words: widening is a shift, and rounding to the
nearest, ties to even, is integer arithmetic.
Every kernel reads token and position from the state words, so that a CUDA graph replays a step at any position.
Pointers are to a tensor's first element. Sizes in capitals are compile-time constants: ROWS, BLOCK and POSITIONS are
powers of two and belong to the kernels, the others to the model.
"""

import triton
import triton.language as tl


@triton.jit
def widened(words):
    """Values of bf16 `words`, int16, as fp32."""
    return (words.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def rounded(values):
    """Words, int16, of fp32 `values` rounded to bf16; every NaN becomes the same one."""
    bits = values.to(tl.uint32, bitcast=True)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(values == values, nearest, 0x7FC0).to(tl.int16)


@triton.jit
def scale_of(x, COLUMNS: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr):
    """The factor 1 / sqrt(mean(x^2) + eps) of an RMSNorm of x: fp32, [COLUMNS]."""
    squares = tl.full((BLOCK,), 0.0, tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + at, mask=at < COLUMNS, other=0.0)
        squares += part * part
    return 1.0 / tl.sqrt(tl.sum(squares, 0) / COLUMNS + EPS)


@triton.jit
def normed_at(x, norm, normed, scale, at, COLUMNS: tl.constexpr):
    """Elements `at` of the normed x, 0 beyond the last, which program 0 also stores to `normed`, fp32, [COLUMNS].

    norm: bf16 weights, [COLUMNS]; scale: from `scale_of`.
    """
    inside = at < COLUMNS
    values = tl.load(x + at, mask=inside, other=0.0) * scale * widened(tl.load(norm + at, mask=inside, other=0))
    tl.store(normed + at, values, mask=inside & (tl.program_id(0) == 0))
    return values


@triton.jit
def block_of(matrix, rows, at, COUNT: tl.constexpr, COLUMNS: tl.constexpr):
    """Elements of a bf16 matrix, [COUNT, COLUMNS], as fp32, [rows, at]; 0 outside."""
    inside = (rows < COUNT)[:, None] & (at < COLUMNS)[None, :]
    return widened(tl.load(matrix + rows.to(tl.int64)[:, None] * COLUMNS + at[None, :], mask=inside, other=0))


@triton.jit
def embed(
    table, angles, state, x, rope,
    HIDDEN: tl.constexpr, PAIR: tl.constexpr, POSITION: tl.constexpr, IDS: tl.constexpr, BLOCK: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy the token's row of `table` to x, fp32, [HIDDEN]; and cos, then sin, of its angles to rope, [PAIR].

    angles: cos and sin of every position, fp32, [positions, PAIR]. One program.
    """
    position = tl.load(state + POSITION)
    token = tl.load(state + IDS + position).to(tl.int64)
    for start in range(0, HIDDEN, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < HIDDEN
        tl.store(x + at, widened(tl.load(table + token * HIDDEN + at, mask=inside, other=0)), mask=inside)
    pair = tl.arange(0, PAIR_BLOCK)
    both = tl.load(angles + position.to(tl.int64) * PAIR + pair, mask=pair < PAIR, other=0.0)
    tl.store(rope + pair, both, mask=pair < PAIR)


@triton.jit
def norm_matvec(
    x, norm, matrix, bias, normed, out,
    COUNT: tl.constexpr, COLUMNS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """Store matrix times the normed x to out, fp32, [COUNT]; program 0 also stores `normed`, fp32, [COLUMNS].

    One program for ROWS rows. Each computes the norm again, which saves a launch. bias: bf16, [COUNT], is added with
    BIAS, else not read.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    scale = scale_of(x, COLUMNS, EPS, BLOCK)
    sums = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = normed_at(x, norm, normed, scale, at, COLUMNS)
        sums += block_of(matrix, rows, at, COUNT, COLUMNS) * values[None, :]
    result = tl.sum(sums, 1)
    if BIAS:
        result += widened(tl.load(bias + rows, mask=rows < COUNT, other=0))
    tl.store(out + rows, result, mask=rows < COUNT)


@triton.jit
def norm_gate_up(
    x, norm, gate, up, normed, out,
    COUNT: tl.constexpr, COLUMNS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store silu(gate n) * (up n) to out, fp32, [COUNT], n being the normed x; the rest as in `norm_matvec`."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    scale = scale_of(x, COLUMNS, EPS, BLOCK)
    gates = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    ups = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = normed_at(x, norm, normed, scale, at, COLUMNS)
        gates += block_of(gate, rows, at, COUNT, COLUMNS) * values[None, :]
        ups += block_of(up, rows, at, COUNT, COLUMNS) * values[None, :]
    gated = tl.sum(gates, 1)
    tl.store(out + rows, gated / (1.0 + tl.exp(-gated)) * tl.sum(ups, 1), mask=rows < COUNT)


@triton.jit
def matvec_residual(
    x, matrix, residual, out,
    COUNT: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store residual + matrix times x to out, fp32, [COUNT]. One program for ROWS rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = tl.full((ROWS, BLOCK), 0.0, tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < COLUMNS, other=0.0)
        sums += block_of(matrix, rows, at, COUNT, COLUMNS) * values[None, :]
    before = tl.load(residual + rows, mask=rows < COUNT, other=0.0)
    tl.store(out + rows, before + tl.sum(sums, 1), mask=rows < COUNT)


@triton.jit
def qk_norm_rope(
    qkv, q_norm, k_norm, rope, state, query, cache,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, ENTRIES: tl.constexpr, EPS: tl.constexpr,
    POSITION: tl.constexpr, ROWS: tl.constexpr, HALF_BLOCK: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Norm and rotate heads of q and k, and take those of v; a program for ROWS of the HEADS + 2 KV_HEADS.

    Without NORM the norms are not read, and heads only rotate.
    Queries go to `query`, fp32, [HEADS, 2 HALF]; keys and values, rounded, to the position's entry of the layer's
    cache, bf16, [2, KV_HEADS, ENTRIES, 2 HALF].
    """
    head = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    pair = tl.arange(0, HALF_BLOCK)[None, :]
    inside = (head < HEADS + 2 * KV_HEADS) & (pair < HALF)
    of_query = inside & (head < HEADS)
    of_entry = inside & (head >= HEADS)
    of_key = of_entry & (head < HEADS + KV_HEADS)
    rotates = of_query | of_key
    at = head * 2 * HALF + pair
    first = tl.load(qkv + at, mask=inside, other=0.0)
    second = tl.load(qkv + HALF + at, mask=inside, other=0.0)
    one = first
    two = second
    if NORM:
        scale = 1.0 / tl.sqrt(tl.sum(first * first + second * second, 1) / (2 * HALF) + EPS)
        left = tl.load(q_norm + pair, mask=of_query, other=0) + tl.load(k_norm + pair, mask=of_key, other=0)
        right = tl.load(q_norm + HALF + pair, mask=of_query, other=0)
        right += tl.load(k_norm + HALF + pair, mask=of_key, other=0)
        one = first * scale[:, None] * widened(left)
        two = second * scale[:, None] * widened(right)
    cos = tl.load(rope + pair, mask=pair < HALF, other=0.0)
    sin = tl.load(rope + HALF + pair, mask=pair < HALF, other=0.0)
    low = tl.where(rotates, one * cos - two * sin, first)
    high = tl.where(rotates, two * cos + one * sin, second)
    tl.store(query + at, low, mask=of_query)
    tl.store(query + HALF + at, high, mask=of_query)
    position = tl.load(state + POSITION)
    entry = cache + ((head - HEADS).to(tl.int64) * ENTRIES + position) * 2 * HALF + pair  # k, then v: as the heads
    tl.store(entry, rounded(low), mask=of_entry)
    tl.store(entry + HALF, rounded(high), mask=of_entry)


@triton.jit
def attention(
    query, cache, state, out,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, ENTRIES: tl.constexpr, SCALE: tl.constexpr,
    POSITION: tl.constexpr, POSITIONS: tl.constexpr, DIM_BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend from one query head, [DIM], to the entries up to the position, POSITIONS at a time; a program for each.

    cache: of the layer, as in `qk_norm_rope`. GROUP: query heads that share a KV head. out: fp32, [heads, DIM].
    """
    head = tl.program_id(0)
    position = tl.load(state + POSITION)
    dim = tl.arange(0, DIM_BLOCK)
    q = tl.load(query + head * DIM + dim, mask=dim < DIM, other=0.0)
    keys = cache + (head // GROUP).to(tl.int64) * ENTRIES * DIM
    values = keys + KV_HEADS * ENTRIES * DIM
    most = tl.full((1,), float("-inf"), tl.float32)  # the largest score so far; the two below are relative to it
    summed = tl.full((1,), 0.0, tl.float32)
    mixed = tl.full((DIM_BLOCK,), 0.0, tl.float32)
    for start in range(0, position + 1, POSITIONS):
        at = start + tl.arange(0, POSITIONS)
        place = at.to(tl.int64)[:, None] * DIM + dim[None, :]
        inside = (at <= position)[:, None] & (dim < DIM)[None, :]
        k = widened(tl.load(keys + place, mask=inside, other=0))
        scores = tl.where(at <= position, tl.sum(k * q[None, :], 1) * SCALE, float("-inf"))
        above = tl.maximum(most, tl.max(scores, 0))
        shares = tl.exp(scores - above)
        kept = tl.exp(most - above)
        v = widened(tl.load(values + place, mask=inside, other=0))
        summed = summed * kept + tl.sum(shares, 0)
        mixed = mixed * kept + tl.sum(shares[:, None] * v, 0)
        most = above
    tl.store(out + head * DIM + dim, mixed / summed, mask=dim < DIM)


@triton.jit
def argmax(
    logits, state,
    VOCAB: tl.constexpr, POSITION: tl.constexpr, GIVEN: tl.constexpr, TOKEN: tl.constexpr, IDS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Choose the largest logit, on ties the lowest id; then advance the position. One program.

    The token goes to the ids unless a prompt gives that id.
    """
    given = tl.load(state + GIVEN)
    position = tl.load(state + POSITION) + 1  # by every thread, before the barriers of a reduction: one stores it below
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    chosen = lane
    for start in range(0, VOCAB, BLOCK):
        at = start + lane
        values = tl.load(logits + at, mask=at < VOCAB, other=float("-inf"))
        chosen = tl.where(values > best, at, chosen)
        best = tl.maximum(best, values)
    token = tl.min(tl.where(best == tl.max(best, 0), chosen, VOCAB - 1), 0)
    tl.store(state + TOKEN, token)
    tl.store(state + IDS + position, token, mask=position >= given)
    tl.store(state + POSITION, position)
