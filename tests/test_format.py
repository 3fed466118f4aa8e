"""Formats below bf16: bytes of rows against their description, read in plain Python, and cases worked by hand."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from common.errors import LabError
from common.model.format import Format, read_format, read_formats
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.validate.reference import Reference
from common.validate.trials import TRIALS
from experiments.engines.transformers_model import causal_lm

MODEL = Model("groups of 32", 64, 96, 2, 4, 2, 32, 97, 48, 1e6, 1e-6, True)
QWEN = Model("qwen3", 1024, 3072, 28, 16, 8, 128, 151_936, 2048, 1e6, 1e-6, True)
FORMATS = ("int8", "int8:32", "int8:8:zeros", "fp8", "fp8:16", "int4", "int4:32", "int4:16:zeros")
MOST = {"int8": 127, "fp8": 448, "int4": 7}  # the largest number; the smallest is its negative


def bf16(bits: int) -> Fraction:
    return Fraction(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def e4m3(code: int) -> Fraction:
    """A number of 8 bits: sign, exponent with a bias of 7, fraction of 3 bits."""
    exponent, fraction = code >> 3 & 15, code & 7
    return (-1) ** (code >> 7) * Fraction(2) ** (max(exponent, 1) - 10) * (fraction + (8 if exponent else 0))


def parts(form: Format, row: bytes, columns: int) -> Iterator[tuple[int, int, int]]:
    """(code, zero point, bits of the scale) of each weight, as common/kernel/scaled.cuh describes a row."""
    at, group = -(-columns * form.bits // 8 // 16) * 16, form.group or columns
    for i in range(columns):
        nibble = i // 8 * 8 + i % 8 // 2 + 4 * (i % 2)  # in a word the even columns come first
        code = row[i] if form.bits == 8 else row[nibble // 2] >> 4 * (nibble % 2) & 15
        if form.zeros:
            yield code, *struct.unpack_from("<HH", row, at + 4 * (i // group))
        else:
            yield code, 2 ** (form.bits - 1), *struct.unpack_from("<H", row, at + 2 * (i // group))


def number(form: Format, code: int, zero: int) -> Fraction:
    return e4m3(code) if form.kind == "fp8" else Fraction(code - zero)


def codes(form: Format) -> list[int]:
    return [code for code in range(2**form.bits) if form.kind != "fp8" or code & 0x7F != 0x7F]  # without NaN


@pytest.fixture
def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("text", "columns", "total"),
    [
        ("bf16", 72, 144),
        ("int8", 72, 80 + 16),  # 72 bytes of numbers and one scale, each filled up to a multiple of 16
        ("int8:128", 1024, 1024 + 8 * 2),
        ("int4:128", 1024, 512 + 8 * 2),
        ("int4:32:zeros", 128, 64 + 4 * 4),
        ("fp8:128", 3072, 3072 + 24 * 2),
    ],
)
def test_bytes_of_a_row(text, columns, total):
    assert read_format(text).row_bytes(columns) == total


@pytest.mark.parametrize(("kind", "bytes_of_a_weight"), [("int8", 1), ("fp8", 1), ("int4", Fraction(1, 2))])
def test_bytes_of_a_token_of_qwen3_0_6b(kind, bytes_of_a_weight):
    """595,984,384 weights, two bytes of a scale for 128 of them, and the cache of two positions."""
    weights = 595_984_384
    model = QWEN.in_formats(f"{kind}:128", f"{kind}:128")
    assert model.bytes_per_token(1) == weights * bytes_of_a_weight + weights // 64 + 2 * 114_688


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_bytes_of_a_position_of_qwen3_0_6b(kind):
    """28 layers of 8 KV heads: 57,344 numbers of a byte, and 16 bytes for the scale of each key and value."""
    model = QWEN.in_formats(kv=kind)
    assert model.kv_bytes_per_position == 114_688 // 2 + 28 * 2 * 8 * 16 == 64_512
    assert Layout(model).cache.size * 2 == model.positions * 64_512
    assert (model.name, model.shape) == (f"{QWEN.name} kv {kind}", QWEN.name)


def test_formats_are_given_in_one_text():
    assert read_formats("int4:128/int8") == ("int4:128", "int8", "bf16")
    assert read_formats("bf16/bf16/fp8") == ("bf16", "bf16", "fp8")
    for text, remedy in (("int8/int8/int4", "one of bf16, fp8, int8"), ("int8/int8/int8/int8", "int4:128/int8/fp8")):
        with pytest.raises(LabError) as raised:
            read_formats(text)
        assert remedy in raised.value.remedy


@pytest.mark.parametrize("text", [text for text in FORMATS if "zeros" not in text])
def test_numbers_that_a_format_has_come_back(text):
    form, columns = read_format(text), 64
    numbers = [0, 1, -1, 2, MOST[read_format(text).kind], -2, 3, 4] * 8
    values = torch.tensor([[each * 2.0 ** (i // (form.group or columns) - 3) for i, each in enumerate(numbers)]])
    row = form.encode(values)
    assert torch.equal(form.decode(row, columns), values)
    found = [*parts(form, row.view(torch.uint8).numpy().tobytes(), columns)]
    assert [number(form, code, zero) for code, zero, _ in found] == numbers
    assert [float(bf16(scale)) for *_, scale in found] == [2.0 ** (i // (form.group or columns) - 3) for i in range(64)]


@pytest.mark.parametrize("text", FORMATS)
def test_every_weight_is_the_nearest_number_of_its_group(text, random, seed):
    form, columns = read_format(text), 32
    values = torch.randn(4, columns, generator=random) * torch.exp(2 * torch.randn(4, columns, generator=random))
    values[1, :16] = 0  # groups of zeros
    values[2] = values[2].abs()  # no negative weight
    rows = form.encode(values)
    decoded = form.decode(rows, columns)
    assert not decoded[values == 0].any()
    for row, got, wanted in zip(rows.view(torch.uint8).numpy(), decoded.tolist(), values.tolist(), strict=True):
        for (code, zero, scale), weight, value in zip(parts(form, row.tobytes(), columns), got, wanted, strict=True):
            assert weight == number(form, code, zero) * bf16(scale)
            nearest = min(abs(number(form, each, zero) * bf16(scale) - Fraction(value)) for each in codes(form))
            assert abs(Fraction(weight) - Fraction(value)) <= nearest * Fraction(1.00001), (seed, weight, value)


@pytest.mark.parametrize("text", [text for text in (*FORMATS, "int4:16:zeros:fp16") if text[:3] == "int"])
def test_no_error_is_more_than_half_of_the_smallest_scale(text, random):
    """In groups of one sign, of one value, of zeros, and with one weight far above the others."""
    form, columns = read_format(text), 32
    group = form.group or columns
    values = torch.randn(60, columns // group, group, generator=random) * 2.0 ** torch.randint(-6, 4, (60, 1, 1))
    values[:12], values[12:24] = values[:12].abs(), -values[12:24].abs()
    values[24:36] = values[24:36, :, :1]
    values[36:48, :, 3] *= 1000
    values[48:50, :, 1:] = 0
    values[50] = 0
    values = values.view(60, columns)
    for got, wanted in zip(
        form.decode(form.encode(values), columns).split(group, 1), values.split(group, 1), strict=True
    ):
        low, high = wanted.amin(1).clamp(max=0), wanted.amax(1).clamp(min=0)
        scale = (high - low) / (2**form.bits - 1) if form.zeros else torch.maximum(-low, high) / MOST[form.kind]
        error = (got.double() - wanted.double()).abs().amax(1)
        assert (error <= scale / 2 * (1 + 2.0**-6)).all()  # a scale itself is rounded up, to 8 bits or more


@pytest.mark.parametrize("text", [text for text in FORMATS if "zeros" not in text])
def test_a_scale_is_the_smallest_with_which_nothing_is_out_of_range(text, random):
    form, columns = read_format(text), 64
    values = torch.randn(9, columns, generator=random)
    group = form.group or columns
    for row, wanted in zip(form.encode(values).view(torch.uint8).numpy(), values, strict=True):
        scales = [scale for *_, scale in parts(form, row.tobytes(), columns)][::group]
        for scale, largest in zip(scales, wanted.abs().view(-1, group).amax(1).tolist(), strict=True):
            assert (
                bf16(scale - 1) * MOST[form.kind]
                < Fraction(largest)
                <= bf16(scale) * MOST[form.kind] * Fraction(1.000001)
            )


@pytest.mark.parametrize(("form", "head"), [("int4:32", "bf16"), ("int8", "int4:16:zeros"), ("bf16", "fp8")])
def test_packed_weights_are_the_bf16_ones_rounded_row_by_row(form, head, tmp_path: Path, seed, monkeypatch):
    monkeypatch.setattr("common.model.weights.BLOCK", 3 * MODEL.hidden)  # rows at a time: 97 and 64 have a rest
    exact, before, original = load("synthetic", MODEL, None, tmp_path, seed)
    model, layout, packed = load("synthetic", MODEL.in_formats(form, head), None, tmp_path, seed)
    assert model.in_formats() == exact
    assert packed.flat.shape == (layout.weights_size,)
    assert layout.tied == (head == "bf16")
    for name in (*layout.global_weights, *layout.layer_weights):
        layer = 1 if name in layout.layer_weights else None
        found, values = layout.weight(name, layer).of(packed.flat), before.weight(name, layer).of(original.flat)
        kind = form if name in model.layer_matrices else head if name == "lm_head" else "bf16"
        expected = (
            read_format(kind).decode(read_format(kind).encode(values), values.shape[-1]) if kind != "bf16" else values
        )
        assert torch.equal(found, expected), name
    gaps = packed.flat.clone()
    for place in layout.tensors():
        slot = layout.weight(*place)
        gaps[slot.offset : slot.offset + slot.size] = 0
    assert not gaps.any()  # no row was written beyond its matrix


def test_the_reference_decodes_as_transformers_does_with_the_same_weights(tmp_path: Path, seed):
    _, layout, packed = load("synthetic", MODEL.in_formats("int4:32:zeros", "int8"), None, tmp_path, seed)
    theirs, ids = causal_lm(layout, packed.flat, torch.float64), list(range(20))
    assert theirs.lm_head.weight.data_ptr() != theirs.model.embed_tokens.weight.data_ptr()
    want = theirs(torch.tensor([ids])).logits[0]
    reference, cache = Reference(layout, packed.flat), torch.full(layout.cache.shape, torch.nan).double()
    for position, token in enumerate(ids):
        taps = reference.step(token, position, cache)  # a cache of float64, as theirs, rounds no entry
        cache[:, :, :, position] = taps.stored
        assert (taps.values["lm_head", None] - want[position]).abs().max() < 1e-4  # their norms are float32


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("int3", "no format 'int3'"),
        ("int8:12", "no format 'int8:12'"),
        ("bf16:32", "no format 'bf16:32'"),
        ("fp8:32:zeros", "no format 'fp8:32:zeros'"),
        ("int4:zeros:32", "no format 'int4:zeros:32'"),
        ("int8:0", "no format 'int8:0'"),
    ],
)
def test_another_text_is_refused(text, cause):
    with pytest.raises(LabError, match=cause):
        read_format(text)


def test_a_group_must_divide_every_row():
    with pytest.raises(LabError, match="a group of 64 does not divide rows of 96 weights"):
        MODEL.in_formats("int4:64", "bf16")
    assert MODEL.in_formats("bf16", "int4:64").formats[1].group == 64  # the head's rows have 64


@pytest.mark.parametrize("form", ["int4:24", "int8:64:zeros", "fp8:32", "int4:64:fp16"])
def test_trials_have_the_groups_of_a_format(form):
    """A trial with one scale a row would prove another kernel than the user's."""
    columns = read_format(form).group
    rows = replace(QWEN, hidden=8 * columns, head_dim=columns, intermediate=16 * columns)  # as a user's are
    shown = [trial.like(rows.in_formats(form, f"int8:{columns}")) for trial in TRIALS]
    for trial in shown:
        assert [str(each) for each in trial.model.formats] == [form, f"int8:{columns}"]
    groups = {trial.name: [width // columns for _, width in trial.model.layer_matrices.values()] for trial in shown}
    assert all(min(groups[trial.name]) >= 2 for trial in TRIALS if trial.plain), "the second scale of a row is read"
    assert any(count % 2 for count in groups["wide"]), "a word of two scales is half full"
    assert max(map(max, groups.values())) > 32, "more groups than lanes"


@pytest.mark.parametrize("group", [128, 1024])
def test_a_large_group_is_tried_as_one_of_64(group):
    """It has several packets, too; wider rows would take minutes, and more shared memory than a GPU has."""
    user = replace(QWEN, hidden=1024, intermediate=2048).in_formats(f"int4:{group}:zeros", f"fp8:{group}")
    assert MODEL.like(user).formats == (Format("int4", 64, zeros=True), Format("fp8", 64))
    assert MODEL.like(user).hidden == MODEL.hidden == 64
