"""Rivals: other engines with the same weights, prompt and number of tokens, on the same GPU in the same run."""

from functools import partial
from typing import Any

from common.config.resolve import check_ids
from common.config.run_config import RunConfig
from common.errors import LabError, Mismatched
from common.errors.machine import MachineError, system_errors
from experiments.engines.adapters import ENGINES, RUNS, WARM_UPS, Generated, Workload, timed_session
from experiments.engines.judged import IDS, STAGES
from experiments.experiment import Experiment
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet
from experiments.tables.result_table import COUNTED, ResultTable

QUESTION = "how fast other engines decode the same weights on the same machine, and whether they choose the same tokens"
NOTES = (
    "Same ids: how many tokens, counted from the first, equal the lab's float64 reference; bf16 engines "
    "differ from it where two logits nearly tie. Time to the first token includes the prompt, which the lab's kernels "
    f"decode token by token. Times are medians of {RUNS} runs after {WARM_UPS} warm-ups.",
    f"Validated: by {STAGES}, where every stage of some steps was compared with the reference, in this run and before "
    f"any time was taken, with the lab's tolerances; by {IDS}, where an engine shows nothing else.",
    "Peak memory is what torch allocated, and for this lab its four buffers; engines with an allocator of their own "
    "show none.",
)
TIMES = ("first token ms", "tok/s", "peak MB")
MISSING = "all times, and every engine that runs on GPUs only; here the ids are compared"


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack of the run and each rival; one that cannot run says why."""
    work = workload(experiment)
    check_ids(work.prompt, experiment.model, "options.prompt_ids")
    chosen = experiment.options.texts("rivals") or tuple(ENGINES)
    for name in chosen:
        if name not in ENGINES:
            raise LabError(f"options.rivals names {name}", f"known: {', '.join(ENGINES)}")
    experiment.show.begin("reference")
    truth = reference(work)

    def rival(name: str) -> dict[str, Any]:
        if not experiment.on_gpu:
            return attempt(name, work, truth)
        try:
            return apart(experiment.config.timeout_s, _alone, experiment.config, name, truth)
        except LabError as error:
            return {"state": f"failed: {error.cause}"}

    own = experiment.session_rows(experiment.config.stacks, lambda session: _row(timed_session(session, work), truth))
    rows = [{"system": f"this lab: {row.pop('variant')}", **row} for row in own]
    others = ((name, experiment.row(name, partial(rival, name))) for name in chosen)
    rows += [{"system": name, **row} for name, row in others if row]
    if not experiment.on_gpu:  # times of an emulation on a CPU say nothing about a GPU
        rows = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    return experiment.answer(QUESTION, rows, NOTES, (COUNTED, MISSING))


def workload(lab: Setup) -> Workload:
    """Options that hold for every engine."""
    options = lab.config.options
    gguf = str(options.location("gguf")) if options.given("gguf") else None
    return Workload(lab, options.wholes("prompt_ids", low=0), options.whole("tokens", low=2), gguf)


def reference(work: Workload) -> list[int]:
    """Ids that the float64 reference appends to the prompt."""
    from common.validate.reference import Reference

    lab = work.lab
    return Reference(lab.model, lab.layout, lab.packed.flat, device=lab.reference_device).greedy(
        work.prompt, work.tokens
    )


def attempt(name: str, work: Workload, truth: list[int]) -> dict[str, Any]:
    """The row of one rival. A failure inside another engine costs that row only."""
    try:
        with system_errors(name):
            return _row(ENGINES[name](work), truth)
    except MachineError:
        raise
    except Mismatched as error:
        return {"state": f"wrong: {error.cause}", "validated": STAGES}
    except LabError as error:
        return {"state": f"not run: {error}"}
    except Exception as error:
        return {"state": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def _alone(config: RunConfig, name: str, truth: list[int]) -> dict[str, Any]:
    """`attempt` in a process of its own: a rival that hangs or crashes costs its limit, and leaves nothing behind."""
    return attempt(name, workload(Setup(config, Quiet())), truth)


def _row(ran: Generated, truth: list[int]) -> dict[str, Any]:
    same = next((at for at, pair in enumerate(zip(ran.ids, truth, strict=True)) if pair[0] != pair[1]), len(truth))
    return {
        "state": "ran",
        "validated": ran.validated,
        "same ids": f"{same} of {len(truth)}",
        "first token ms": 1e3 * ran.first,
        "tok/s": ran.rate,
        "peak MB": ran.peak_bytes / 1e6 if ran.peak_bytes else None,
    }
