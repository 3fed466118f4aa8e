"""Kernels of models with the traits of each family: stacks, counts, trials, and a kernel that lacks a trait."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from composed import STACKS, VARIANTS, Composed
from sampled import sampled

from common.config.resolve import model_named
from common.json_values import from_json, to_json
from common.model.layout import Layout
from common.model.shapes import Model
from common.record.record import model_fields
from common.validate.check import validate
from common.validate.scenarios import scenarios
from common.validate.tolerances import ReferenceSteps
from common.validate.trials import TRIALS

pytestmark = pytest.mark.cpu
TINY = {name: model_named(f"{name}_tiny") for name in ("llama", "qwen2")}
# Heads of another size than hidden / heads, a head that is not tied, a bias beside a norm of heads, scaling alone.
OTHERS = {
    "llama, odd": replace(model_named("odd"), name="llama, odd", qk_norm=False, rope="llama3:8:1:4:32"),
    "qwen2, odd": replace(model_named("odd"), name="qwen2, odd", qk_norm=False, qkv_bias=True),
    "all": replace(model_named("odd"), name="all", qkv_bias=True, rope="llama3:4:1:2:32"),
}
MODELS = TINY | OTHERS
CASES = [*product([*VARIANTS, *STACKS], MODELS)]


@pytest.mark.parametrize(("composed", "name"), sampled(CASES, 3), ids=str)
def test_stacks_pass_with_the_traits_of_each_family(composed, name, proved):
    proved(composed, MODELS[name])


@pytest.mark.parametrize("name", TINY)
def test_bytes_are_matrices_gains_and_biases(name, open_session, synthetic, seed):
    """A step of the baseline reads each matrix and each vector of the model once, the token's row, and nothing else."""
    model = TINY[name]
    session = open_session(Composed(()).source(model), synthetic(model, seed))
    session.reset([1], 0)
    counts = session.count()
    layout, biases = Layout(model), model.layers * (model.query + 2 * model.kv) * model.qkv_bias
    vectors = (2 * model.layers + 1) * model.hidden
    assert sum(layout.weight(*one).size for one in layout.tensors()) == model.matrix_weights + vectors + biases
    assert counts.bytes_by_width("weights") == {
        64: 2 * (model.matrix_weights + vectors),
        16: 2 * (model.hidden + biases),
    }


LACKING = {  # a trait that the kernel lacks: the model, what the kernel has, and the first wrong stage
    "no bias": ("qwen2", {"qkv_bias": False}, "qkv"),
    "no scaling": ("llama", {"rope": "default"}, "rope"),
    "a norm of heads": ("llama", {"qk_norm": True}, "qk_norm_rope"),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_a_kernel_without_a_trait_is_found(lacking, open_session, synthetic, seed):
    """The kernel is that of a model without the trait, with the weights that both have: the rest is the same."""
    name, traits, stage = LACKING[lacking]
    model = MODELS[name]
    other, weights = replace(model, **traits), synthetic(model, seed)
    session = open_session(Composed(()).source(other), moved(weights, model, other))
    reference = ReferenceSteps(Layout(model), weights)
    cases = scenarios(model, seed, weights, quick=True)
    found = validate(session, weights, cases, seed, reference=reference).mismatch
    assert found.stage == stage, found


def moved(weights: torch.Tensor, model: Model, other: Model) -> torch.Tensor:
    """The tensors that two models share, in the layout of the other one; gains of the other are 1."""
    before, after = Layout(model), Layout(other)
    flat = torch.ones(after.weights_size, dtype=torch.bfloat16)
    for place in set(before.tensors()) & set(after.tensors()):
        after.weight(*place).of(flat).copy_(before.weight(*place).of(weights))
    return flat


def test_trials_take_the_traits_of_the_users_model():
    for model in MODELS.values():
        for trial in TRIALS:
            assert trial.like(model).model.traits == model.traits
            assert replace(trial.like(model), model=trial.model) == trial
    assert TRIALS[0].like(model_named("tiny")) == TRIALS[0]


def test_a_record_from_before_the_traits_is_that_of_qwen3_with_a_cache_of_bf16():
    model = model_named("tiny")
    row = {key: value for key, value in to_json(model).items() if key not in (*model.traits, "kv_format")}
    assert from_json(Model, row) == model
    assert model_fields({"model": row}) == to_json(model)
    assert from_json(Model, to_json(MODELS["all"])) == MODELS["all"]
