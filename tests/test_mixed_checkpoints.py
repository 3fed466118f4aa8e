"""Checkpoints with mixed keys, values, dtypes and layouts: as published libraries read them, or one line."""

from pathlib import Path

import published
import pytest
import torch
from checkpoints import save
from mixed_checkpoints import RIGHT, WRONG, mixed
from sampled import sampled

from common.errors import LabError
from common.model.weights import hf_slots, load
from common.validate.reference import Reference

NUMBERS = range(400)  # LAB_SAMPLE=all: all of them, some minutes


@pytest.mark.parametrize("number", sampled(NUMBERS, 20))
def test_it_is_read_as_published_libraries_do_or_refused_in_one_line(number: int, tmp_path: Path) -> None:
    case = mixed(number)
    save(tmp_path / "model", {name: each.contiguous() for name, each in case.stored.items()}, **case.config)
    refusal = None
    try:
        model, layout, packed = load(str(tmp_path / "model"), None, None, tmp_path)
    except LabError as error:
        refusal = error
    if refusal:
        assert "\n" not in str(refusal)
        assert refusal.remedy
        assert case.must != RIGHT, (case.why, str(refusal))
        print("refused", case.why, refusal)
        return
    assert case.must != WRONG, case.why
    meant = published.weights(case.config, case.stored)
    for name, slot in hf_slots(layout):
        assert torch.equal(slot.of(packed.flat).double(), meant[name]), (case.why, name)
    ids = [number % 90, 3, 9, 41, 7]
    theirs, cache = published.logits(case.config, meant, ids), torch.full(layout.cache.shape, torch.nan).double()
    reference = Reference(model, layout, packed.flat)
    for position, token in enumerate(ids):
        taps = reference.step(token, position, cache)  # a cache of float64, as theirs, rounds no entry
        cache[:, :, :, position] = taps.stored
        assert (taps["lm_head", None] - theirs[position]).abs().max() < 1e-4 * theirs.abs().max(), case.why
    print("taken", case.why)
