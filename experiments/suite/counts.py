"""What one decode step does, exactly: barriers, bytes by the width of their load, prefetches; the same on any machine.

Its records are what predictions stand on; those of Qwen3-0.6B are committed.
"""

import pandas as pd

from common.catalog import read_catalog
from experiments.inquiry import GRID, Inquiry
from experiments.outcome import COUNTED, Outcome
from experiments.prediction import gpus


def ask(inquiry: Inquiry) -> Outcome:
    """A row for every variant and named stack; those that prefetch are counted on the grid of every GPU."""
    rows = []
    catalog = read_catalog()
    for name in inquiry.options.texts("variants") or (*catalog.variants, *catalog.stacks):
        stack = inquiry.stack(name)
        source = inquiry.source(stack.variants, stack.knobs)
        counts = inquiry.ledger.count(source, GRID * source.blocks_per_sm)
        for gpu in gpus.names():
            inquiry.counts(source, inquiry.gpu(gpu))
        weights = counts.bytes_by_width("weights")
        rows.append(
            {
                "variant": name,
                "grid barriers": counts.total("grid_barriers"),
                "block barriers": counts.total("block_barriers"),
                "weights MB, 64-bit loads": weights.get(64, 0) / 1e6,
                "weights MB, 128-bit loads": weights.get(128, 0) / 1e6,
                "copied async MB": counts.total("copied_async") / 1e6,
                "KV MB": counts.loaded("kv") / 1e6,
                "activations MB": counts.loaded("activations") / 1e6,
                "prefetched MB": counts.total("prefetched") / 1e6,
                "shuffles": counts.total("shuffles"),
                "atomics": counts.total("atomics"),
            }
        )
    question = f"what one step of {inquiry.model.name} does at position 1 on a grid of {GRID} blocks"
    note = (
        "Activations are loaded by every row of a matrix again, out of L1 or L2; weights and KV cache come from memory."
    )
    return Outcome("counts", question, pd.DataFrame(rows), COUNTED, [note])
