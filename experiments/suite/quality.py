"""Quality of variants and of formats: divergence of their next-token distributions from transformers in float32."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common.config.resolve import check_ids
from common.devices.protocol import Session
from common.errors import LabError
from common.model.format import read_formats, read_kv_format
from common.validate.snapshot import Snapshot
from experiments.engines.transformers_model import causal_lm, rounding
from experiments.experiment import Experiment
from experiments.run.tokenizer import encode, load_tokenizer
from experiments.tables.result_table import COUNTED, ResultTable

QUESTION = "how far each variant's distribution of the next token is from transformers in float32, and each format's"
NOTES = (
    "Mean over the positions of one text, every token given. KL in nats, of the variant from transformers; "
    "agreement: same most likely token; perplexity of the text itself. transformers in bf16 is the row to compare "
    "with; in a format, transformers in float32 has weights rounded to it, and only those differ. int4:128/int8/fp8: "
    "the layers' matrices, the LM head, and keys and values as a cache keeps them.",
    "With synthetic weights the perplexity has no meaning; the KL divergence has.",
)


def ask(experiment: Experiment) -> ResultTable:
    """A row for transformers in bf16, one for each format and one for each variant; on the CPU as on a GPU."""
    stacks = experiment.chosen()
    formats = dict.fromkeys(map(read_formats, experiment.options.texts("formats")))
    ids = given_ids(experiment)
    truth = theirs(experiment, ids, torch.float32)

    def short() -> dict[str, float]:
        return compare(truth, theirs(experiment, ids, torch.bfloat16), ids)

    def in_formats(form: str, head: str, kv: str) -> dict[str, float]:
        return compare(truth, rounded(experiment, ids, form, head, kv), ids)

    reference = experiment.row("transformers, bf16", short, on_device=False)
    rows = [{"variant": "transformers, bf16", **reference}] if reference else []
    for form, head, kv in formats:
        name = f"transformers, {form}/{head}/{kv}".removesuffix("/bf16").removesuffix("/bf16")
        row = experiment.row(name, partial(in_formats, form, head, kv), on_device=False, formats=[form, head, kv])
        rows += [{"variant": name, **row}] if row else []
    rows += experiment.session_rows(stacks, lambda session: compare(truth, ours(session, ids), ids))
    notes = [*NOTES, f"{len(ids)} tokens of {experiment.model.name}, weights {experiment.config.weights}."]
    return experiment.answer(QUESTION, rows, notes, (COUNTED, None))


def given_ids(experiment: Experiment) -> tuple[int, ...]:
    """`options.text` by the weights' tokenizer, else `options.ids`, else random ones from the seed."""
    options, model = experiment.options, experiment.model
    if options.given("text") and options.given("ids"):
        raise LabError("both options.text and options.ids are given", "leave one of them out")
    if options.given("text"):
        tokenizer = load_tokenizer(experiment.packed.folder, "give options.ids=[...]")
        ids = encode(tokenizer, options.text("text"))
    elif options.given("ids"):
        ids = options.wholes("ids", low=0)
    else:
        random = torch.Generator().manual_seed(experiment.config.seed)
        count = min(options.whole("tokens", low=2), model.positions)
        ids = tuple(torch.randint(model.vocab, (count,), generator=random).tolist())
    check_ids(ids, model, "options.ids")
    if not 2 <= len(ids) <= model.positions:
        raise LabError(f"{len(ids)} tokens, the cache has {model.positions} positions", "give at least two that fit")
    return ids


def compare(truth: Tensor, got: Tensor, ids: Sequence[int]) -> dict[str, float]:
    """KL(truth || got) in nats, top-1 agreement in percent, perplexity of `ids` under `got`.

    truth, got: logits, [len(ids), vocab]; row i is what follows ids[: i + 1].
    """
    p, q = truth.double().log_softmax(-1), got.double().log_softmax(-1)
    kl = (p.exp() * (p - q)).sum(-1)
    follow = q[:-1].gather(1, torch.tensor(ids[1:])[:, None])
    return {
        "mean KL": float(kl.mean()),
        "max KL": float(kl.max()),
        "top-1 agreement %": 100 * float((truth.argmax(-1) == got.argmax(-1)).double().mean()),
        "perplexity": float(follow.mean().neg().exp()),
        "transformers' perplexity": float(p[:-1].gather(1, torch.tensor(ids[1:])[:, None]).mean().neg().exp()),
    }


def theirs(experiment: Experiment, ids: Sequence[int], dtype: torch.dtype) -> Tensor:
    """transformers' logits of the whole text: float32, [len(ids), vocab]."""
    experiment.show.begin(f"transformers in {dtype}")
    return _logits(causal_lm(experiment.layout, experiment.packed.flat, dtype), ids)


def rounded(experiment: Experiment, ids: Sequence[int], form: str, head: str, kv: str) -> Tensor:
    """The same in float32, in other formats of the layers' matrices, of the LM head, and of keys and values."""
    experiment.show.begin(f"transformers with weights in {form}, keys and values in {kv}")
    _, layout, packed = experiment.load((form, head, kv))
    kept = read_kv_format(kv)
    theirs = causal_lm(layout, packed.flat, torch.float32)
    return _logits(theirs, ids, rounding(theirs.config, kept) if kept.scaled else None)


def _logits(model: Any, ids: Sequence[int], cache: Any = None) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor([list(ids)]), past_key_values=cache).logits[0].float()


def ours(session: Session, ids: Sequence[int]) -> Tensor:
    """A kernel's logits with every id given: float32, [len(ids), vocab]; a step leaves a row for each of its tokens."""
    session.reset(ids, position=0, forced=len(ids))
    rows: list[Tensor] = []
    while len(rows) < len(ids):
        session.run()
        seen = Snapshot.at(session)
        rows += [seen.of_token(number).tap("lm_head").clone() for number in range(session.layout.tokens)]
    return torch.stack(rows[: len(ids)])  # the rest are logits of drafts
