"""Bytes that the PTX of a stack moves, against what the host device counts for the same text."""

import json
from contextlib import closing

import pytest
import torch
from composed import NAMED, VARIANTS, Composed
from sampled import sampled

from common.devices.counters import DATA, FIELDS, WIDTHS
from common.devices.host.device import HostDevice
from common.devices.ptx.counted import class_of
from common.devices.ptx.device import PtxDevice
from common.model.layout import Layout
from common.model.weights import load
from experiments.__main__ import main

pytestmark = pytest.mark.host

KEPT_BY_NVRTC = [f"activations_{8 * width}bit" for width in WIDTHS]  # it loads once what the text loads again
# The host counts some loads of shared memory, warp barriers as shuffles, and named barriers as those of a block.
UNSEEN = ("block_barriers", "shuffles", *(f"{DATA[-1]}_{8 * width}bit" for width in WIDTHS))


def counts_of(one, model, cache, seed):
    """Counts of a token, {stage: {field: count}}, on the host device and on the PTX device."""
    source, weights = one.source(model), load("synthetic", model, None, cache, seed)[2].flat
    history = torch.zeros(Layout(model).cache.shape, dtype=torch.bfloat16)
    found = []
    for device in (HostDevice(cache, seed), PtxDevice(cache, seed=seed)):
        with closing(device.session(device.compile(source), weights)) as session:
            session.reset([1] * 10, 9, history)
            found.append(session.count().as_dict())
    return found


@pytest.mark.parametrize("one", sampled([*VARIANTS, *NAMED], 2), ids=str)
def test_a_token_moves_the_bytes_that_the_host_device_counts(one, host_cache, tiny, seed):
    host, ptx = (
        {field: sum(counts.get(field, 0) for counts in each.values()) for field in FIELDS}
        for each in counts_of(one, tiny, host_cache, seed)
    )
    seen = [field for field in FIELDS if field not in (*UNSEEN, *KEPT_BY_NVRTC)]
    assert {field: ptx[field] for field in seen} == {field: host[field] for field in seen}
    assert all(ptx[field] <= host[field] for field in KEPT_BY_NVRTC)


def test_a_stage_has_its_own_bytes(host_cache, tiny, seed):
    """Weights, stored results and the cache by stage, of the baseline: none of its stages begins another's work."""
    host, ptx = counts_of(Composed(()), tiny, host_cache, seed)
    assert ptx["down"]["weights_64bit"] == 2 * 2 * tiny.intermediate * tiny.hidden
    for stage, counts in host.items():
        for field, count in counts.items():
            if field.startswith(("weights", "kv", "stored")):
                assert ptx[stage][field] == count, (stage, field)


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("fma.rn.f32", "float"),
        ("mad.lo.s32", "integer"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor"),
        ("ld.global.nc.v4.u32", "memory"),
        ("mbarrier.try_wait.parity.acquire.cta.shared::cta.b64", "exchange"),
        ("setp.lt.f32", "branch"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint", "cp"),
    ],
)
def test_an_opcode_has_a_class(opcode, kind):
    assert class_of(opcode) == kind


def test_the_experiment_counts_instructions_of_a_stage(host_cache, tiny, tmp_path, capsys):
    """By hand: a product a weight; five sums in each lane of a row's warp; and in down the residual of each row."""
    argv = ["experiment=counts", "options.instructions=true", "device=ptx", "variant=baseline", "model=tiny"]
    assert main([*argv, "json=true", f"cache={host_cache}", f"results={tmp_path}/r.jsonl"]) == 0
    rows = {row["stage"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    down, head = tiny.hidden * tiny.layers, tiny.vocab
    assert 1e6 * rows["down"]["M float"] == pytest.approx(down * (tiny.intermediate + 5 * 32 + 1))
    assert 1e6 * rows["lm_head"]["M float"] == pytest.approx(head * (tiny.hidden + 5 * 32))
    assert 1e6 * rows["lm_head"]["weights MB"] == pytest.approx(2 * head * tiny.hidden)
    for column in ("M instructions", "M integer", "weights MB", "stored MB"):
        assert rows["all"][column] == pytest.approx(sum(row[column] for name, row in rows.items() if name != "all"))
