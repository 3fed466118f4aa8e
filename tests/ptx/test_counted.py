"""Bytes that the PTX of a stack moves, against what the host device counts for the same text."""

from contextlib import closing

import pytest
import torch
from composed import NAMED, VARIANTS, Composed
from sampled import sampled

from common.devices.counters import DATA, FIELDS, WIDTHS
from common.devices.host.device import HostDevice
from common.devices.ptx.device import PtxDevice
from common.model.layout import Layout
from common.model.weights import load

pytestmark = pytest.mark.host

KEPT_BY_NVRTC = [f"activations_{8 * width}bit" for width in WIDTHS]  # it loads once what the text loads again
# Bytes that it loads where the text's condition is false: the asm of load_weights is not volatile. Gains, 8 B a thread,
# by all 256 threads of 8 blocks, not by the 16 that have some.
MORE = {("folded_norm", "weights_64bit"): 8 * (256 - 16) * 8}
UNSEEN = ("grid_barriers", "block_barriers", "shuffles", "kept", *(f"{DATA[-1]}_{8 * width}bit" for width in WIDTHS))


def counts_of(one, model, cache, seed):
    """Counts of a token, {stage: {field: count}}, on the host device and on the PTX device."""
    source, weights = one.source(model), load("synthetic", model, None, cache, seed)[2].flat
    history = torch.zeros(Layout(model).cache.shape, dtype=torch.bfloat16)
    found = []
    for device in (HostDevice(cache, seed), PtxDevice(cache, seed=seed, counting=True)):
        with closing(device.session(device.compile(source), weights)) as session:
            session.reset([1] * 10, 9, history)
            session.run()
            found.append(session.executed if device.name == "ptx" else session.counts().as_dict())
    return found


@pytest.mark.parametrize("one", sampled([*VARIANTS, *NAMED], 2), ids=str)
def test_a_token_moves_the_bytes_that_the_host_device_counts(one, host_cache, tiny, seed):
    host, ptx = (
        {field: sum(counts.get(field, 0) for counts in each.values()) for field in FIELDS}
        for each in counts_of(one, tiny, host_cache, seed)
    )
    seen = [field for field in FIELDS if field not in (*UNSEEN, *KEPT_BY_NVRTC)]
    assert {field: ptx[field] for field in seen} == {
        field: host[field] + MORE.get((str(one), field), 0) for field in seen
    }
    assert all(ptx[field] <= host[field] for field in KEPT_BY_NVRTC)


def test_a_stage_has_its_own_bytes(host_cache, tiny, seed):
    """Weights, stored results and the cache by stage, of the baseline: none of its stages begins another's work."""
    host, ptx = counts_of(Composed(()), tiny, host_cache, seed)
    assert ptx["down"]["weights_64bit"] == 2 * 2 * tiny.intermediate * tiny.hidden
    for stage, counts in host.items():
        for field, count in counts.items():
            if field.startswith(("weights", "kv", "stored")):
                assert ptx[stage][field] == count, (stage, field)
