"""The same weights, prompt and number of tokens in other engines, on the same GPU, in the same run; ids compared."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from common.config import check_ids
from common.errors import LabError
from experiments.inquiry import Inquiry
from experiments.outcome import COUNTED, MEASURED, Outcome
from experiments.rivals.engines import RIVALS, Ran, Task, timed
from experiments.suite.quality import open_stack

QUESTION = "how fast others decode the same weights on the same machine, and whether they choose the same tokens"
NOTES = (
    "Same ids: how many tokens from the first on are those of the lab's float64 reference; bf16 engines part from it "
    "where two logits nearly tie. Time to the first token includes the prompt, which the lab's kernels decode token "
    "by token.",
    "Peak memory is what torch allocated, and for this lab its four buffers; engines that allocate by themselves show "
    "none.",
)


def ask(inquiry: Inquiry) -> Outcome:
    """A row for each stack of the run and each rival; one that cannot run says why."""
    lab, options = inquiry.lab, inquiry.options
    prompt = options.wholes("prompt_ids", low=0)
    check_ids(prompt, lab.model, "options.prompt_ids")
    tokens = options.whole("tokens", low=2)
    chosen = options.texts("rivals") or tuple(RIVALS)
    for name in chosen:
        if name not in RIVALS:
            raise LabError(f"options.rivals names {name}", f"known: {', '.join(RIVALS)}")
    task = Task(lab, prompt, tokens, options.text("gguf") if options.given("gguf") else None)
    inquiry.show.begin("reference")
    truth = reference(task)
    rows = []
    for stack in inquiry.config.stacks:
        inquiry.show.begin(stack.name)
        with closing(open_stack(inquiry, stack)) as session:
            rows.append(_row(f"this lab: {stack.name}", ours(session, task), truth))
    for name in chosen:
        inquiry.show.begin(name)
        rows.append(attempt(name, task, truth))
    table = pd.DataFrame(rows)
    if inquiry.on_gpu:
        return Outcome("rivals", QUESTION, table, MEASURED, NOTES)
    timings = ["first token ms", "tok/s", "peak MB"]  # of a CPU that emulates: they say nothing
    missing = "all times, and every engine that runs on GPUs only; here the ids are compared"
    return Outcome("rivals", QUESTION, table.drop(columns=timings, errors="ignore"), COUNTED, NOTES, missing)


def reference(task: Task) -> list[int]:
    """What the float64 reference appends to the prompt."""
    from common.reference import Reference

    return Reference(task.lab.model, task.lab.layout, task.lab.packed.flat).greedy(task.prompt, task.tokens)


def ours(session: Any, task: Task) -> Ran:
    """One of the lab's kernels. Poisoning its buffers for the next run is not part of its time."""
    prompt, slot = list(task.prompt), session.layout.state["ids"]

    def generate(tokens: int) -> list[int]:
        session.run(len(prompt) + tokens - 1)
        return session.state()[slot.offset + len(prompt) :][:tokens].tolist()

    ran = timed(generate, task, lambda: session.reset(prompt, position=0, forced=len(prompt)))
    return replace(ran, peak_bytes=session.layout.bytes)


def attempt(name: str, task: Task, truth: list[int]) -> dict[str, Any]:
    """The row of one rival. Whatever goes wrong inside another's engine costs its own row only."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        return _row(name, RIVALS[name](task), truth)
    except LabError as error:
        return {"system": name, "state": f"not run: {error.cause}"}
    except Exception as error:
        return {"system": name, "state": f"failed: {type(error).__name__}: {str(error).strip().splitlines()[:1]}"}


def _row(name: str, ran: Ran, truth: list[int]) -> dict[str, Any]:
    same = next((at for at, pair in enumerate(zip(ran.ids, truth, strict=True)) if pair[0] != pair[1]), len(truth))
    return {
        "system": name,
        "state": "ran",
        "same ids": f"{same} of {len(truth)}",
        "first token ms": 1e3 * ran.first,
        "tok/s": ran.rate,
        "peak MB": ran.peak_bytes / 1e6 if ran.peak_bytes else None,
    }
