"""Numbers chosen by GPTQ: cases with a known optimum, its measure against the nearest numbers, and its inputs."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from checkpoints import save
from sampled import sampled
from tokenizers import Tokenizer, models, pre_tokenizers

from common.errors import LabError
from common.model import gptq
from common.model.format import read_format
from common.validate.reference import Reference
from experiments.__main__ import main
from experiments.run import calibration
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

FORMATS = ("int4", "int4:32", "int4:16:zeros", "int4:32:fp16", "int8:32", "int8:8:zeros", "fp8:16")


def test_pairs_of_columns_get_their_best_numbers():
    """A scale of 1 by the 7, which no other column's inputs go with. The inputs of columns 2 and 3 go together, and
    those of 4 and 5, so that the second makes up for the first; those of 6 and 7 are opposite.
    """
    weights = torch.tensor([[7, 0, 0.4, 0.4, -1.8, 2.35, 2.3, -1.4]])
    moments = torch.eye(8, dtype=torch.float64)
    for first, second, together in ((2, 3, 0.9), (4, 5, 0.9), (6, 7, -0.9)):
        moments[first, second] = moments[second, first] = together
    form = read_format("int4")
    found = form.decode(gptq.encode(form, weights, moments), 8)[0]
    assert found.tolist() == [7, 0, 0, 1, -2, 3, 2, -2]  # the nearest are 7, 0, 0, 0, -2, 2, 2, -1
    for i in (2, 4, 6):
        pair, wanted = moments[i : i + 2, i : i + 2], weights[0, i : i + 2].double()

        def loss(numbers, pair=pair, wanted=wanted) -> float:
            off = torch.tensor(numbers, dtype=torch.float64) - wanted
            return float(off @ pair @ off)

        assert loss(found[i : i + 2].tolist()) == min(map(loss, product(range(-7, 8), repeat=2)))


@pytest.mark.parametrize("text", sampled(FORMATS, 4))
def test_no_row_is_worse_than_the_nearest_numbers(text, seed):
    """By the error of its products with the inputs; the sum over all rows is far smaller, as these go together."""
    form, random = read_format(text), torch.Generator().manual_seed(seed)
    columns = 32 * int(torch.randint(1, 9, (1,), generator=random))  # up to two blocks
    values = torch.randn(24, columns, generator=random) * torch.exp(torch.randn(24, 1, generator=random))
    values[3] = 0
    inputs = torch.randn(64, columns // 4, generator=random) @ torch.randn(columns // 4, columns, generator=random)
    inputs = inputs.double() + 0.1 * torch.randn(64, columns, generator=random)
    inputs[:, 5] = 0  # a column without input

    def losses(rows: torch.Tensor) -> torch.Tensor:
        return (inputs @ (form.decode(rows, columns).double() - values).T).square().sum(0)

    rows, nearest = gptq.encode(form, values, inputs.T @ inputs), form.encode(values)
    ours, theirs = losses(rows), losses(nearest)
    assert (ours <= theirs * (1 + 1e-9)).all(), seed
    assert ours.sum() < 0.9 * theirs.sum(), seed
    at = form.scales_at(columns)  # the scales are those of the nearest numbers, so no number can be out of range
    assert torch.equal(rows.view(torch.uint8)[:, at:], nearest.view(torch.uint8)[:, at:])
    if form.kind == "int4" and not form.zeros:
        content = rows.view(torch.uint8)[:, : columns // 2]
        assert (torch.stack((content & 15, content >> 4)) != 0).all()  # -7 to 7 and half of the range, 8


def test_without_inputs_numbers_are_the_nearest(seed):
    form, values = read_format("int4:16"), torch.randn(5, 48, generator=torch.Generator().manual_seed(seed))
    rows = gptq.encode(form, values, torch.zeros(48, 48, dtype=torch.float64))
    assert torch.equal(rows.view(torch.int16), form.encode(values).view(torch.int16))


@pytest.fixture
def setup(configured, tmp_path, seed):
    """setup(*overrides): a Setup with its own empty cache."""

    def setup_(*overrides: str, cache: str = "cache") -> Setup:
        return Setup(configured("variant=baseline", f"seed={seed}", f"cache={tmp_path / cache}", *overrides), Quiet())

    return setup_


@pytest.mark.parametrize("name", sampled(["tiny", "qwen2_tiny", "llama_tiny"], 2))
def test_inputs_are_those_of_the_reference(name, setup, monkeypatch):
    monkeypatch.setattr(calibration, "WINDOWS", 2)
    lab = setup(f"model={name}", "model.positions=12", "format=int4:gptq", "head_format=int8:gptq")
    model, layout, packed = lab.load(("bf16", "bf16", "bf16"))
    ids = torch.tensor(calibration._ids(lab.config, model, None, 24)).split(12)
    reference, sums = Reference(model, layout, packed.flat), {}
    stages = {"qkv": "input_norm", "o": "attention", "gate": "post_norm", "up": "post_norm", "down": "gate_up"}
    for window in ids:
        cache = torch.zeros(layout.cache.shape, dtype=torch.bfloat16)
        for position, token in enumerate(window.tolist()):
            taps = reference.step(token, position, cache)
            cache[:, :, :, position] = taps.stored
            for (stage, layer), x in taps.values.items():
                if stage in {*stages.values(), "final_norm"}:
                    sums[stage, layer] = sums.get((stage, layer), 0) + torch.outer(x, x)
    found = list(calibration.calibration(lab.config, Quiet(), model, layout, packed).moments())
    assert [name for name, *_ in found] == [*stages] * model.layers + ["lm_head"]
    for name, layer, moments in found:
        torch.testing.assert_close(moments, sums[stages.get(name, "final_norm"), layer], rtol=1e-6, atol=1e-9)


def test_weights_of_a_seed_are_the_same_bits_and_others_than_the_nearest(setup):
    lab, again = (setup("model=tiny", "format=int4:32:gptq", cache=name) for name in ("one", "two"))
    nearest = setup("model=tiny", "format=int4:32")
    first, second, other = (one.packed.flat.view(torch.int16) for one in (lab, again, nearest))
    assert torch.equal(first, second)
    assert lab.packed.sha == again.packed.sha != nearest.packed.sha
    assert not torch.equal(first, other)
    assert lab.model == replace(nearest.model, name=f"{nearest.model.name}:gptq", format="int4:32:gptq")


@pytest.fixture
def checkpoint(tmp_path: Path, seed) -> Path:
    """A checkpoint with a tokenizer of one word for each id, w0 to w63."""
    folder = save(tmp_path / "model").parent
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = torch.randint(64, (900,), generator=torch.Generator().manual_seed(seed)).tolist()
    (tmp_path / "text").write_text(" ".join(f"w{i}" for i in ids))
    return folder


def test_a_checkpoint_is_calibrated_on_a_text(setup, checkpoint, tmp_path):
    given = [f"weights={checkpoint}", "format=int4:16:gptq"]
    one, other = (setup(*given, f"calibration={tmp_path / name}") for name in ("text", "more"))
    (tmp_path / "more").write_text((tmp_path / "text").read_text() + " w1")
    assert one.packed.sha != other.packed.sha
    assert one.model.format == "int4:16:gptq"
    assert len(list((tmp_path / "cache" / "weights").glob("*.bf16"))) == 1  # as it is stored
    one.check(validates=False)
    assert one.packed.flat.shape == (one.layout.weights_size,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["format=bf16:gptq"], "no format 'bf16:gptq'"),
        (["format=int4:16", "calibration=text"], "calibration= has no effect on formats without gptq"),
        (["format=int4:16:gptq"], "gptq needs a text to calibrate on; give calibration=FILE"),
        (["format=int4:16:gptq", "calibration=none"], "cannot be read"),
        (["format=int4:16:gptq", "calibration=bytes"], "cannot be read"),
        (["format=int4:16:gptq", "calibration=short"], "has 3 tokens; give a text of 256 or more"),
        (["format=int4:16:gptq", "calibration=text", "weights=synthetic"], "no effect on synthetic weights"),
    ],
)
def test_a_mistake_is_one_line(given, said, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("w1 w2 w3")
    Path("bytes").write_bytes(b"\xff\xfe")
    assert main(["variant=baseline", "weights=model", "cache=c", "results=r", "device=ptx", *given]) == 2
    captured = capsys.readouterr().err.splitlines()
    assert said in captured[-1]
    assert captured[-1].startswith("error: ")


def test_a_format_with_gptq_needs_a_calibration(checkpoint, tmp_path):
    from common.model.weights import load

    with pytest.raises(LabError, match="nothing to calibrate with"):
        load(str(checkpoint), None, None, tmp_path, formats=("int4:16:gptq", "bf16", "bf16"))
