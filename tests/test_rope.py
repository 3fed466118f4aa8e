"""Tables of RoPE, scaled and not: against transformers and against numbers worked by hand."""

import math
from dataclasses import replace

import pytest
import torch
from test_reference import close, exact
from wide_torch import in_float64

from common.config.resolve import model_named
from common.errors import LabError
from common.model.rope import Scaling, read_rope
from common.model.shapes import Model
from common.validate.reference import rope_table, rotate
from experiments.engines.transformers_model import rope_parameters


def test_rope_by_hand():
    model = Model("hand", 8, 8, 1, 1, 1, 8, 8, 8, 16.0, 0.0, True)
    # theta 16, head_dim 8: frequencies 16^0, 16^(-1/4), 16^(-1/2), 16^(-3/4) = 1, 1/2, 1/4, 1/8
    table = rope_table(model, 3, torch.float64)
    angles = [3, 1.5, 0.75, 0.375]
    close(table, exact([[math.cos(a) for a in angles], [math.sin(a) for a in angles]]))
    # element 1 pairs with element 5, not with its neighbour
    cos, sin = math.cos(1.5), math.sin(1.5)
    unit = torch.eye(8, dtype=torch.float64)
    close(rotate(unit[[1, 5]], table), exact([[0, cos, 0, 0, 0, sin, 0, 0], [0, -sin, 0, 0, 0, cos, 0, 0]]))


def test_scaled_rope_by_hand():
    # theta 16, 32 positions: 1, 1/2, 1/4, 1/8 of a radian a position turn 5.1, 2.5, 1.3 and 0.64 times in the training
    model = Model("hand", 8, 8, 1, 1, 1, 8, 8, 8, 16.0, 0.0, True, qk_norm=False, rope="llama3:4:1:3:32")
    turns = [32 * frequency / (2 * math.pi) for frequency in (1, 1 / 2, 1 / 4, 1 / 8)]
    kept = [1, (turns[1] - 1) / 2, (turns[2] - 1) / 2, 0]
    angles = [3 * f * (k + (1 - k) / 4) for f, k in zip((1, 1 / 2, 1 / 4, 1 / 8), kept, strict=True)]
    assert angles[0] == 3
    assert angles[3] == 3 / 32
    close(rope_table(model, 3, torch.float64), exact([[math.cos(a) for a in angles], [math.sin(a) for a in angles]]))


@pytest.mark.parametrize("name", ["llama_1b", "llama_3b", "llama_tiny", "qwen2_0_5b", "qwen3_0_6b"])
def test_tables_equal_those_of_transformers(name):
    """At positions below, between and above the wavelengths with which scaling begins and ends: 8, 32; 2048, 8192."""
    from transformers import LlamaConfig, modeling_rope_utils
    from transformers.models.llama import modeling_llama

    model = model_named(name)
    config = LlamaConfig(
        hidden_size=model.query,
        num_attention_heads=model.heads,
        head_dim=model.head_dim,
        max_position_embeddings=131_072,
        rope_parameters=rope_parameters(model),
    )
    positions = torch.tensor([0, 1, 7, 20, 63, 1000, 2048, 5000, 8192, 20_000, 131_071])
    with in_float64(modeling_rope_utils, modeling_llama):
        cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=torch.float64), positions[None])
    half = model.head_dim // 2
    want = torch.stack((cos[0, :, :half], sin[0, :, :half]))
    got = rope_table(model, positions[:, None], torch.float64)
    assert (got - want).abs().max() < 1e-10, (got - want).abs().amax((0, 1))
    plain = rope_table(replace(model, rope="default"), positions[:, None], torch.float64)
    assert ((got - plain).abs().max() > 0.5) == (model.rope != "default")


def test_a_scaling_has_one_spelling():
    assert read_rope("default").factor == 1
    for text in ("llama3:32:1:4:8192", "llama3:8:1.5:4.25:8192"):
        assert str(read_rope(text)) == text
    assert read_rope("llama3:8:1:4:64") == Scaling(8.0, 1.0, 4.0, 64.0)


NO_NUMBERS = ("8:1:4", "8:1:4:64:2", "8:1:4:.", "nan:1:4:64")
SENSELESS = ("1e999:1:4:64", "0.5:1:4:64", "8:4:4:64", "8:0:4:64", "8:1:1e999:64", "8:1:4:0")
OTHERWISE = ("8.0:1:4:64", "08:1:4:64")


REFUSED = ["", "yarn", " default", "llama3", *(f"llama3:{rest}" for rest in (*NO_NUMBERS, *SENSELESS, *OTHERWISE))]


@pytest.mark.parametrize("text", REFUSED)
def test_another_scaling_is_refused_in_one_line(text):
    with pytest.raises(LabError, match="rope '") as caught:
        replace(model_named("llama_tiny"), rope=text)
    assert "\n" not in str(caught.value)
